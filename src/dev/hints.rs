//! What to do with a development cluster: lines to read and to paste.

use std::collections::BTreeMap;

use super::layout::Layout;

/// Addresses, process ids, and commands to paste into another shell.
pub(super) fn lines(layout: &Layout, pids: &BTreeMap<u16, u32>, leader: Option<u16>) -> Vec<String> {
    let urls: Vec<_> = layout.endpoints().iter().map(ToString::to_string).collect();
    let program = layout.program().display().to_string();
    let mut lines = vec![String::new(), "The cluster is ready:".to_owned()];
    lines.extend(layout.nodes().zip(&urls).map(|(node, url)| node_line(node, url, pids, leader)));
    lines.push(String::new());
    lines.extend(command_lines(&shell_word(&program), &urls.join(",")));
    lines.extend(curl_lines(urls.first().map_or("", String::as_str)));
    lines.extend(
        leader
            .and_then(|leader| pids.get(&leader))
            .map(|pid| format!("# kill the leader: the lock outlives it\nkill -9 {pid}\n")),
    );
    lines
}

fn node_line(node: u16, url: &str, pids: &BTreeMap<u16, u32>, leader: Option<u16>) -> String {
    let pid = pids.get(&node).map_or_else(|| "?".to_owned(), u32::to_string);
    let part = if leader == Some(node) { ", leader" } else { "" };
    format!("  node {node}: {url}, pid {pid}{part}")
}

fn command_lines(program: &str, urls: &str) -> [String; 7] {
    [
        "# by the command line, in another shell".to_owned(),
        format!("export LOCKSTEAD_ENDPOINTS={urls}"),
        format!("TOKEN=$({program} acquire demo --ttl 5m)"),
        format!("{program} get demo"),
        format!("{program} renew demo --ttl 5m --token \"$TOKEN\""),
        format!("{program} release demo --token \"$TOKEN\""),
        format!("{program} status\n"),
    ]
}

fn curl_lines(url: &str) -> [String; 5] {
    let post =
        |path: &str, body: &str| format!("curl -s {url}/v1/locks/{path} -H 'content-type: application/json' -d {body}");
    [
        "# by HTTP; TOKEN is in the answer of acquire".to_owned(),
        post("acquire", r#"'{"name": "demo", "ttl_ms": 300000}'"#),
        post("renew", r#"'{"name": "demo", "ttl_ms": 300000, "token": "'"$TOKEN"'"}'"#),
        format!("curl -s '{url}/v1/locks/get?name=demo'"),
        post("release", r#"'{"name": "demo", "token": "'"$TOKEN"'"}'"#) + "\n",
    ]
}

/// A text as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    if text.bytes().all(safe) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_an_odd_place_is_one_word() {
        assert_eq!(shell_word("/usr/bin/lockstead"), "/usr/bin/lockstead");
        assert_eq!(shell_word("/my dir/it's"), r"'/my dir/it'\''s'");
    }
}
