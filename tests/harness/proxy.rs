//! A TCP proxy that can cut, stall, delay, and swallow an answer.

use std::net::SocketAddr;
use std::ops::Deref;

use lockstead_chaos::cluster::proxy;
pub(crate) use lockstead_chaos::cluster::proxy::Mode;

use super::clock::secs;

/// A proxy before one address.
#[derive(Debug)]
pub(crate) struct Proxy(proxy::Proxy);

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        Self(proxy::Proxy::to(target).expect("a free address"))
    }

    /// The answer that was swallowed, once it was.
    #[track_caller]
    pub(crate) fn swallowed_answer(&self) -> String {
        self.0.swallowed_answer(secs(10)).expect("an answer was swallowed")
    }
}

impl Deref for Proxy {
    type Target = proxy::Proxy;

    fn deref(&self) -> &proxy::Proxy {
        &self.0
    }
}
