//! Names that have tripped other lock services.

/// The longest name that may be: 1,024 bytes.
pub(crate) fn longest() -> String {
    "n".repeat(1_024)
}

/// Names that must come back byte for byte, each another lock than all the others.
pub(crate) fn tricky() -> Vec<String> {
    let plain = [
        "a/b",
        "a%2Fb",
        "a%2fb",
        "/a",
        "a",
        "a//b",
        ".",
        "..",
        "a/../b",
        "b",
        "%",
        "%zz",
        "\0",
        "a\0",
        "#?&+",
        "#?&%2B",
        "a b",
        "a+b",
        " ",
        " a",
        "a ",
        "\n",
        "a\n",
        "\r\n",
        "\t",
        "\u{202e}gnp.exe",
        "\u{e9}",
        "e\u{301}",
        "🔒",
        "👩‍👩‍👧",
        "list",
        "watch",
        "get",
        "\"",
        "\\",
        "'",
        "{}",
        "null",
        "-",
        "--name",
        "A",
        "\u{feff}",
        "\u{7f}",
        "\u{1b}[2J",
        "=",
        "name=x",
    ];
    let mut names: Vec<String> = plain.map(str::to_owned).into();
    names.extend([longest(), "🔒".repeat(256)]);
    names
}
