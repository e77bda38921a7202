//! Opening a connection to another node.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockstead_core::{ClusterId, Incarnation, NodeId};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frame::Connection;
use super::hello::{Advertised, Hello, HelloAnswer, NodeCard, PROTOCOL, Purpose, RefusedWhy, VERSION, Welcome};
use super::starts::{Acquaintance, SeenStarts};
use crate::types::Member;

/// What a connection and its hello may take at least. Where elections may take longer, they may as well: links are
/// slow.
const DIAL_TIME_MIN: Duration = Duration::from_millis(500);
/// Whoever accepts a connection must be through with its probe within the time for a hello.
const PROBE_TIME_MAX: Duration = Duration::from_secs(1);

type ClusterSource = dyn Fn() -> Option<ClusterId> + Send + Sync;
type OnWord = dyn Fn(NodeId, Word<'_>) + Send + Sync;

/// What a member says of this node, each time that it is dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// It knows this node, and its membership says so of it.
    Welcome(Option<&'a Member>),
    /// It refuses this node, in these words.
    Refused(RefusedWhy, &'a str),
}

/// Who was found at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its id.
    pub(crate) node_id: NodeId,
    /// The lineage it belongs to; `None` if it is empty.
    pub(crate) cluster: Option<ClusterId>,
    /// Where it wants to be reached.
    pub(crate) advertised: Advertised,
    card: NodeCard,
    version: String,
}

impl Found {
    /// Its data directory.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.card.incarnation
    }

    /// How the membership shall name it.
    pub(crate) fn as_member(&self) -> Member {
        let NodeCard { incarnation, starts, process, .. } = self.card;
        let (Advertised { peer, api }, version) = (self.advertised.clone(), self.version.clone());
        Member { peer, api, incarnation, version, starts, process }
    }
}

/// Opens connections in the name of this node. All clones are one dialer.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<Parts>);

struct Parts {
    card: NodeCard,
    cluster: Box<ClusterSource>,
    routes: BTreeMap<NodeId, String>,
    on_word: Box<OnWord>,
    seen: SeenStarts,
    dial_time_max: Duration,
}

/// Why there is no connection. In every case nothing but the hello was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nobody answered in time, or the connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other node refuses this one.
    #[error("refused ({why:?}): {text}")]
    Refused {
        /// The reason.
        why: RefusedWhy,
        /// The other node's words.
        text: String,
    },
    /// Whoever answered is not whom this node wants.
    #[error("{0}")]
    Stranger(String),
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialer({:?})", self.0.card)
    }
}

impl Dialer {
    /// `cluster` tells the lineage of this node at the moment; `routes` are addresses that go before those of the
    /// membership; `on_word` is told what each member says of this node when it is dialed; `election_max` is the
    /// maximum election timeout.
    pub(crate) fn new(
        card: NodeCard,
        cluster: impl Fn() -> Option<ClusterId> + Send + Sync + 'static,
        routes: BTreeMap<NodeId, String>,
        on_word: impl Fn(NodeId, Word<'_>) + Send + Sync + 'static,
        election_max: Duration,
    ) -> Self {
        let (cluster, on_word) = (Box::new(cluster), Box::new(on_word));
        let dial_time_max = election_max.max(DIAL_TIME_MIN);
        Self(Arc::new(Parts { card, cluster, routes, on_word, seen: SeenStarts::default(), dial_time_max }))
    }

    /// The longest time that a connection and its hello may take.
    pub(super) fn dial_time_max(&self) -> Duration {
        self.0.dial_time_max
    }

    /// The longest time that an earlier process may take to show that it still runs; whoever dialed waits for that.
    fn probe_time_max(&self) -> Duration {
        (self.0.dial_time_max * 2 / 5).min(PROBE_TIME_MAX)
    }

    /// The starts of other nodes that this dialer has met, to be shared with the acceptor.
    pub(crate) fn seen_starts(&self) -> SeenStarts {
        self.0.seen.clone()
    }

    /// Opens a connection to a member.
    pub(super) async fn dial(
        &self,
        target: NodeId,
        member: &Member,
        purpose: Purpose,
        time_max: Duration,
    ) -> Result<Connection, DialError> {
        let to = (target, member.incarnation);
        let dialed = self.dial_at(self.address(target, member), Some(to), purpose, time_max).await;
        match &dialed {
            Ok((_, welcome)) => (self.0.on_word)(target, Word::Welcome(welcome.known.as_ref())),
            Err(DialError::Refused { why, text }) => (self.0.on_word)(target, Word::Refused(*why, text)),
            Err(DialError::Io(_) | DialError::Stranger(_)) => {}
        }
        let (mut connection, welcome) = dialed?;
        connection.met(self.meet(welcome.card, member)?);
        Ok(connection)
    }

    /// Has a member say what it thinks of this node.
    pub(crate) async fn ask_for_word(&self, target: NodeId, member: &Member) -> Result<(), DialError> {
        self.dial(target, member, Purpose::Members, self.dial_time_max()).await.map(drop)
    }

    /// The process that answers where a member is; `None` if nobody does, or another node.
    pub(crate) async fn process_of(&self, target: NodeId, member: &Member) -> Option<u64> {
        let to = Some((target, member.incarnation));
        let probed = self.dial_at(self.address(target, member), to, Purpose::Probe, self.probe_time_max()).await;
        probed.ok().map(|(_, welcome)| welcome.card.process)
    }

    /// Who is at a peer address?
    pub(crate) async fn look_at(&self, address: &str) -> Result<Found, DialError> {
        let (mut connection, Welcome { cluster, card, version, .. }) =
            self.dial_at(address, None, Purpose::Probe, self.dial_time_max()).await?;
        let advertised = timeout(self.dial_time_max(), connection.receive()).await.map_err(io::Error::from)??;
        Ok(Found { node_id: card.node_id, cluster, advertised, card, version })
    }

    /// Where a member is dialed.
    pub(crate) fn address<'a>(&'a self, target: NodeId, member: &'a Member) -> &'a str {
        self.0.routes.get(&target).unwrap_or(&member.peer)
    }

    fn meet(&self, card: NodeCard, member: &Member) -> Result<Acquaintance, DialError> {
        let judged = self.0.seen.judge(card, Some(member));
        judged.and_then(|_| self.0.seen.accept(card)).map_err(|refusal| DialError::Stranger(refusal.text))
    }

    /// Opens a connection to whoever is at an address, or to `to` alone.
    pub(super) async fn dial_at(
        &self,
        address: &str,
        to: Option<(NodeId, Incarnation)>,
        purpose: Purpose,
        time_max: Duration,
    ) -> Result<(Connection, Welcome), DialError> {
        match timeout(time_max.min(self.dial_time_max()), self.greet(address, to, purpose)).await {
            Ok(greeted) => greeted,
            Err(elapsed) => Err(DialError::Io(elapsed.into())),
        }
    }

    async fn greet(
        &self,
        address: &str,
        to: Option<(NodeId, Incarnation)>,
        purpose: Purpose,
    ) -> Result<(Connection, Welcome), DialError> {
        let mut connection = Connection::new(TcpStream::connect(address).await?)?;
        let (cluster, version) = ((self.0.cluster)(), VERSION.to_owned());
        let hello = Hello { protocol: PROTOCOL, cluster, from: self.0.card, to, purpose, version };
        connection.send(&hello).await?;
        match connection.receive().await? {
            HelloAnswer::Refused { why, text } => Err(DialError::Refused { why, text }),
            HelloAnswer::Welcome(welcome) => {
                check_cluster(cluster, welcome.cluster, purpose)?;
                check_card(to, welcome.card)?;
                connection.trust();
                Ok((connection, welcome))
            }
        }
    }
}

fn check_card(to: Option<(NodeId, Incarnation)>, card: NodeCard) -> Result<(), DialError> {
    match to {
        Some(to) if to != card.key() => {
            let (node_id, incarnation) = to;
            let text = format!("{card:?} answered instead of node {node_id} with directory {incarnation}");
            Err(DialError::Stranger(text))
        }
        _ => Ok(()),
    }
}

fn check_cluster(mine: Option<ClusterId>, theirs: Option<ClusterId>, purpose: Purpose) -> Result<(), DialError> {
    let fits = match purpose {
        Purpose::Raft | Purpose::Requests | Purpose::Members | Purpose::Restate => mine == theirs,
        Purpose::Join | Purpose::Probe => mine.is_none() || theirs.is_none() || mine == theirs,
    };
    let text = || format!("a node of cluster {theirs:?} answered a node of cluster {mine:?}");
    if fits { Ok(()) } else { Err(DialError::Stranger(text())) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::TcpListener;

    use super::*;
    use crate::peer::fakes::{FakeNode, card, dialer, member_at, serve, welcome};
    use crate::peer::lock;

    const HOME: ClusterId = ClusterId(7);

    /// Node 1 of `HOME` dials node 2 at an acceptor that answers `answer` whatever the hello says.
    async fn dial_one_that_answers(dialer: &Dialer, answer: HelloAnswer) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = member_at(2, listener.local_addr().unwrap());
        let acceptor = async {
            let mut connection = Connection::new(listener.accept().await.unwrap().0).unwrap();
            connection.receive::<Hello>().await.unwrap();
            connection.send(&answer).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(dialer.dial(2, &member, Purpose::Raft, DIAL_TIME_MIN), acceptor);
        outcome.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn only_the_node_wanted_is_accepted() {
        let welcome = |cluster, card| HelloAnswer::Welcome(welcome(cluster, card));
        let other_directory = NodeCard { incarnation: Incarnation(9), ..card(2) };
        let older_copy = NodeCard { starts: 0, ..card(2) };
        let second_process = NodeCard { process: 99, ..card(2) };
        let dialer = dialer(1, Some(HOME));
        let mut results = Vec::new();
        for answer in [
            welcome(Some(HOME), card(2)),
            welcome(Some(ClusterId(8)), card(2)),
            welcome(None, card(2)),
            welcome(Some(HOME), card(3)),
            welcome(Some(HOME), other_directory),
            welcome(Some(HOME), older_copy),
            welcome(Some(HOME), second_process),
            welcome(Some(HOME), card(2)),
        ] {
            results.push(dial_one_that_answers(&dialer, answer).await.is_ok());
        }
        assert_eq!(results, [true, false, false, false, false, false, false, true]);
    }

    #[tokio::test]
    async fn what_a_member_says_of_this_node_is_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let record = told.clone();
        let on_word = move |id, word: Word<'_>| lock(&record).push(format!("{id} {word:?}"));
        let dialer = Dialer::new(card(1), || Some(HOME), BTreeMap::new(), on_word, Duration::ZERO);
        let answer = HelloAnswer::Refused { why: RefusedWhy::OldStart, text: "old".to_owned() };
        dial_one_that_answers(&dialer, answer).await.unwrap_err();
        dial_one_that_answers(&dialer, HelloAnswer::Welcome(welcome(Some(HOME), card(2)))).await.unwrap();
        assert_eq!(*lock(&told), ["2 Refused(OldStart, \"old\")", "2 Welcome(None)"]);
    }

    #[tokio::test]
    async fn a_route_goes_before_the_membership() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let routes = BTreeMap::from([(2, listener.local_addr().unwrap().to_string())]);
        let dialer = Dialer::new(card(1), || Some(HOME), routes, |_, _| (), Duration::ZERO);
        let member = Member { peer: "127.0.0.1:1".to_owned(), ..Member::default() };
        let (outcome, accepted) = tokio::join!(dialer.dial(2, &member, Purpose::Raft, DIAL_TIME_MIN), async {
            Connection::new(listener.accept().await.unwrap().0).unwrap().receive::<Hello>().await
        });
        assert_eq!(accepted.unwrap().to, Some((2, member.incarnation)));
        assert!(outcome.is_err());
    }

    #[tokio::test]
    async fn whoever_is_looked_at_says_who_it_is_and_where_it_wants_to_be_reached() {
        let node = serve(FakeNode::new(2, None)).await;
        let found = dialer(1, Some(HOME)).look_at(&node.address()).await.unwrap();
        assert_eq!((found.node_id, found.cluster, found.incarnation()), (2, None, card(2).incarnation));
        let member = found.as_member();
        assert_eq!(
            (member.peer.as_str(), member.api.as_str(), member.incarnation),
            ("peer:2", "api:2", Incarnation(2))
        );
    }

    #[tokio::test]
    async fn silence_ends_a_dial() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = member_at(2, listener.local_addr().unwrap());
        let dialed = dialer(1, Some(HOME)).dial(2, &member, Purpose::Raft, Duration::from_millis(20)).await;
        assert!(matches!(dialed, Err(DialError::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
    }
}
