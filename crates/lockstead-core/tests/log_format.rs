//! The bytes of a batch are what another version of this program finds in its log.

use lockstead_core::record::{BATCH_HEADER_BYTES, BATCH_VERSION, BatchError};
use lockstead_core::{
    Batch, BatchEncoder, DropReason, Fence, Hold, LeaseTime, Live, LockKey, LockName, Metadata, Mode, NamespaceName,
    OwnerName, Record, RequestId, SessionId, Token, Ttl, WallTime,
};

fn lock() -> LockKey {
    LockKey::new(&NamespaceName::parse("ns").expect("within bounds"), &LockName::parse("é").expect("within bounds"))
}

fn hold() -> Hold {
    Hold {
        lock: lock(),
        fence: Fence(300),
        token: Token([0xab; 16]),
        owner: Some(OwnerName::parse("me").expect("within bounds")),
        request_id: Some(RequestId::parse("0123456789abcdef").expect("within bounds")),
        mode: Mode::Shared,
        permits: 5,
        session: Some(SessionId(9)),
        ttl: Ttl::DEFAULT,
        deadline: LeaseTime(70_000),
        delay_ms: 4,
        acquired_at: WallTime(1_700_000_000_000),
        metadata: Metadata::parse(vec![("k".to_owned(), "v".to_owned())]).expect("within bounds"),
    }
}

fn batch() -> Batch {
    Batch {
        term: 3,
        time: LeaseTime(0x0102),
        records: vec![
            Record::Hold(hold()),
            Record::Drop { lock: lock(), fence: Fence(1), reason: DropReason::GivenBack },
            Record::Restate(Live::Hold(hold())),
        ],
    }
}

const HEADER: &str = "01 0300000000000000 0201000000000000";
const HOLD: &str = "056e7300c3a9 fb2c01 abababababababababababababababab 01026d65 011030313233343536373839616263646566 01 05 \
                    0109 fb3075 fc70110100 04 fd0068e5cf8b010000 01016b0176";
const DROP: &str = "01 056e7300c3a9 01 02";

fn golden() -> String {
    format!("{HEADER} 00 {HOLD} {DROP} 02 00 {HOLD}").replace(' ', "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn a_batch_encodes_to_the_bytes_it_always_did() {
    assert_eq!(hex(&batch().encode()), golden());
    assert_eq!(Batch::decode(&batch().encode()), Ok(batch()));
}

#[test]
fn the_encoder_knows_its_size_at_each_step() {
    let mut encoder = BatchEncoder::new(3, LeaseTime(0x0102));
    assert_eq!((encoder.records(), encoder.len_bytes()), (0, BATCH_HEADER_BYTES));
    for (position, record) in batch().records.iter().enumerate() {
        encoder.push(record);
        assert_eq!(encoder.records(), position + 1);
    }
    assert_eq!(encoder.len_bytes(), golden().len() / 2);
    assert_eq!(hex(&encoder.into_bytes()), golden());
}

#[test]
fn a_tick_is_a_batch_without_records() {
    let tick = Batch { term: u64::MAX, time: LeaseTime(u64::MAX), records: vec![] };
    assert_eq!(hex(&tick.encode()), format!("01{}", "ff".repeat(16)));
    assert_eq!(Batch::decode(&tick.encode()), Ok(tick));
}

#[test]
fn bytes_that_are_no_whole_batch_are_refused() {
    let bytes = batch().encode();
    assert_eq!(Batch::decode(&[]), Err(BatchError::Short(0)));
    assert_eq!(Batch::decode(&bytes[..16]), Err(BatchError::Short(16)));
    let newer = [&[BATCH_VERSION + 1], &bytes[1..]].concat();
    assert_eq!(Batch::decode(&newer), Err(BatchError::Version(2)));
    let boundaries = {
        let mut encoder = BatchEncoder::new(3, LeaseTime(0));
        batch().records.iter().fold(vec![BATCH_HEADER_BYTES], |mut ends, record| {
            encoder.push(record);
            ends.push(encoder.len_bytes());
            ends
        })
    };
    for cut in BATCH_HEADER_BYTES..bytes.len() {
        let whole_records = boundaries.iter().filter(|end| **end <= cut).count() - 1;
        match Batch::decode(&bytes[..cut]) {
            Ok(_) => assert!(boundaries.contains(&cut), "cut at {cut}"),
            Err(BatchError::Record { position, .. }) => assert_eq!(position, whole_records, "cut at {cut}"),
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
    let trailing = [&bytes[..], &[9]].concat();
    assert!(matches!(Batch::decode(&trailing), Err(BatchError::Record { position: 3, .. })));
}

#[test]
fn a_record_with_a_text_out_of_bounds_does_not_decode() {
    let text = golden().replace("056e7300c3a9", "054e7300c3a9");
    let bytes: Vec<_> =
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert!(matches!(Batch::decode(&bytes), Err(BatchError::Record { position: 0, .. })), "namespace Ns");
}
