//! The interface of one node, as a client sees it.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::clock::{ms, now, secs};
use super::http::{Answer, Conn, request};

/// How much longer than its `wait_ms` a request may take: the product's 5 s, and what the machine may add.
pub(crate) const REQUEST_GRACE: Duration = secs(5);
const MACHINE_GRACE: Duration = secs(2);

/// Where a node's clients call. Each call is a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    /// How long a call may take on top of its wait.
    patience: Duration,
}

impl Api {
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, patience: REQUEST_GRACE + MACHINE_GRACE }
    }

    /// The same node, for a client that gives a try up earlier.
    pub(crate) fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&[u8]>, wait: Duration) -> io::Result<Answer> {
        let begin = now();
        let mut conn = Conn::open(self.address)?;
        let left = (wait + self.patience).saturating_sub(begin.elapsed());
        let mut answer = conn.call(&request(method, path, body), left)?;
        answer.sent = begin;
        Ok(answer)
    }

    fn post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        let wait = ms(body["wait_ms"].as_u64().unwrap_or(0));
        self.call("POST", path, Some(body.to_string().as_bytes()), wait)
    }

    fn read(&self, path: &str) -> io::Result<Answer> {
        self.call("GET", path, None, Duration::ZERO)
    }

    /// The body goes as it is: `{"name": …, …}`.
    pub(crate) fn acquire(&self, body: &Value) -> io::Result<Answer> {
        self.post("/v1/locks/acquire", body)
    }

    /// An acquire on a connection of its own, sent and not waited for.
    pub(crate) fn start_acquire(&self, body: &Value) -> io::Result<Conn> {
        let mut conn = Conn::open(self.address)?;
        conn.send(&request("POST", "/v1/locks/acquire", Some(body.to_string().as_bytes())))?;
        Ok(conn)
    }

    pub(crate) fn release(&self, name: &str, token: &str) -> io::Result<Answer> {
        self.post("/v1/locks/release", &json!({"name": name, "token": token}))
    }

    pub(crate) fn renew(&self, name: &str, token: &str, ttl_ms: u64) -> io::Result<Answer> {
        self.post("/v1/locks/renew", &json!({"name": name, "token": token, "ttl_ms": ttl_ms}))
    }

    /// The body goes as it is.
    pub(crate) fn renew_with(&self, body: &Value) -> io::Result<Answer> {
        self.post("/v1/locks/renew", body)
    }

    pub(crate) fn get(&self, name: &str) -> io::Result<Answer> {
        self.read(&format!("/v1/locks/get?name={}", percent_encoded(name)))
    }

    pub(crate) fn get_stale(&self, name: &str) -> io::Result<Answer> {
        self.read(&format!("/v1/locks/get?consistency=stale&name={}", percent_encoded(name)))
    }

    pub(crate) fn cluster(&self) -> io::Result<Answer> {
        self.read("/v1/admin/cluster")
    }

    pub(crate) fn snapshot(&self) -> io::Result<Answer> {
        self.patient_for(secs(40)).call("POST", "/v1/admin/snapshot", None, Duration::ZERO)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.patient_for(secs(1)).read("/readyz").is_ok_and(|answer| answer.status == 200)
    }

    /// The reason of a 503; `None` if it is ready, or does not answer.
    pub(crate) fn reason_not_ready(&self) -> Option<String> {
        let answer = self.patient_for(secs(2)).read("/readyz").ok().filter(|answer| answer.status == 503)?;
        answer.body["reason"].as_str().map(str::to_owned)
    }

    /// The sum over all series of a metric, whatever its prefix; `None` if there is none or no answer.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let page = self.read("/metrics").ok()?;
        let values = page.text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let found = series.split('{').next()?;
            let matches = found == name || found.strip_prefix("lockstead_") == Some(name);
            matches.then(|| value.parse::<f64>().ok())?
        });
        values.reduce(|sum, value| sum + value)
    }

    /// How many requests wait for locks, if this node leads.
    pub(crate) fn waiting(&self) -> Option<usize> {
        let waiting = self.metric("waiting")?;
        format!("{waiting}").parse().ok()
    }
}

/// A request id never used before.
pub(crate) fn fresh_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("request-{:08}-{:08}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A name as a value of a query, every byte encoded that could mean anything.
pub(crate) fn percent_encoded(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _infallible = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
