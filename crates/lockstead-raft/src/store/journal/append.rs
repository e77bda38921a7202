//! The writing end of a journal.

use std::io;
use std::sync::Arc;

use super::super::backlog::Backlog;
use super::format::{self, Group, Header, Mark, PAGE};
use super::records::RECORD_BYTES_MAX;
use super::{End, Layout, Medium, Records};

/// The writing end of a journal. After an error it must not be used again.
pub(in crate::store) struct Journal {
    id: u64,
    layout: Layout,
    medium: Box<dyn Medium>,
    backlog: Arc<Backlog>,
    /// The last group in each segment.
    lasts: Vec<u64>,
    end: Option<End>,
    /// The sequence of the next group.
    next: u64,
    mark: Option<Mark>,
    is_mark_synced: bool,
    /// The segment before, if its last mark is not synced yet.
    unsynced_before: Option<usize>,
}

impl Journal {
    /// Goes on where the journal ends. Sled has all of it by now.
    pub(in crate::store) fn new(
        id: u64,
        layout: Layout,
        found: (Option<End>, usize, u64),
        medium: Box<dyn Medium>,
        backlog: Arc<Backlog>,
    ) -> Self {
        assert!(layout.segment_bytes.is_multiple_of(PAGE) && layout.entry_bytes_max() > RECORD_BYTES_MAX);
        let (end, segments, last) = found;
        let lasts = vec![0; segments];
        let (mark, is_mark_synced, unsynced_before) = (None, false, None);
        Self { id, layout, medium, backlog, lasts, end, next: last + 1, mark, is_mark_synced, unsynced_before }
    }

    /// Writes the records and makes them durable; gives the last group that they went to. Waits for sled if no segment
    /// is free.
    pub(in crate::store) fn write(&mut self, records: &Records) -> io::Result<u64> {
        let mut from = 0;
        while from < records.len() {
            let (body, next) = records.slice(from, self.room());
            if next == from {
                self.begin_segment()?;
                continue;
            }
            self.write_group(body)?;
            from = next;
        }
        Ok(self.next - 1)
    }

    /// Says beside the groups how far they are durable, without a sync of its own.
    pub(in crate::store) fn mark(&mut self) -> io::Result<()> {
        let (Some(end), durable) = (&mut self.end, self.next - 1) else { return Ok(()) };
        if durable < end.header.first {
            return Ok(());
        }
        let filled = self.backlog.filled();
        if let Some((slot, header)) = end.before.take() {
            let mark = Mark { generation: header.generation, durable, filled };
            self.medium.write(slot, 0, &format::first_page(header, Some(mark)))?;
            self.unsynced_before = Some(slot);
        }
        let mark = Mark { generation: end.header.generation, durable, filled };
        if self.mark != Some(mark) {
            self.medium.write(end.slot, 0, &format::first_page(end.header, Some(mark)))?;
            self.mark = Some(mark);
            self.is_mark_synced = false;
        }
        Ok(())
    }

    /// Makes the mark durable. That of the segment before first: with both gone, the group would pass for torn.
    pub(in crate::store) fn sync_mark(&mut self) -> io::Result<()> {
        self.mark()?;
        if let Some(slot) = self.unsynced_before.take() {
            self.medium.sync(slot)?;
        }
        if let Some(end) = self.end.as_ref().filter(|_| !self.is_mark_synced) {
            self.medium.sync(end.slot)?;
            self.is_mark_synced = true;
        }
        Ok(())
    }

    /// Whether there is nothing to say that the mark on disk does not say.
    pub(in crate::store) fn is_settled(&self) -> bool {
        let Some(end) = &self.end else { return true };
        let durable = self.next - 1;
        let last_word = Mark { generation: end.header.generation, durable, filled: durable };
        self.mark == Some(last_word) && self.is_mark_synced && self.unsynced_before.is_none()
    }

    /// The longest body that fits in what is left of the segment.
    fn room(&self) -> usize {
        let used = |end: &End| end.base + end.pending.len();
        self.end.as_ref().map_or(0, |end| format::body_max(self.layout.segment_bytes - used(end)))
    }

    fn write_group(&mut self, body: &[u8]) -> io::Result<()> {
        let end = self.end.as_mut().expect("there is room, so there is a segment");
        let group =
            Group { generation: end.header.generation, sequence: self.next, filled: self.backlog.filled(), body };
        format::push_group(&mut end.pending, self.id, group);
        let used = end.pending.len();
        end.pending.resize(used.next_multiple_of(PAGE), 0);
        self.medium.write(end.slot, end.base, &end.pending)?;
        self.medium.sync(end.slot)?;
        self.is_mark_synced = true;
        let whole_pages = used - used % PAGE;
        end.pending.truncate(used);
        end.pending.drain(..whole_pages);
        end.base += whole_pages;
        self.lasts[end.slot] = self.next;
        self.next += 1;
        Ok(())
    }

    /// Turns to another segment. Its header is written with its first group.
    fn begin_segment(&mut self) -> io::Result<()> {
        let slot = self.free_slot()?;
        let before = self.end.as_ref().map(|end| (end.slot, end.header));
        let generation = before.map_or(1, |(_, before)| before.generation + 1);
        let header = Header { id: self.id, generation, first: self.next, filled: self.backlog.filled() };
        self.end = Some(End { slot, header, base: 0, pending: format::first_page(header, None), before });
        self.mark = None;
        self.unsynced_before = None;
        Ok(())
    }

    /// The segment, not the current one, whose groups are the oldest of those that sled has.
    fn free_slot(&mut self) -> io::Result<usize> {
        let current = self.end.as_ref().map(|end| end.slot);
        loop {
            for spare in self.backlog.take_spares() {
                self.medium.add(spare);
                self.lasts.push(0);
            }
            let filled = self.backlog.filled();
            let free = |slot: &usize| Some(*slot) != current && self.lasts[*slot] <= filled;
            if let Some(slot) = (0..self.lasts.len()).filter(free).min_by_key(|slot| self.lasts[*slot]) {
                return Ok(slot);
            }
            self.backlog.wait_for_room(filled)?;
        }
    }
}
