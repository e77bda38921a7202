//! What a run comes to, for people and for machines.

mod chart;
mod figures;
mod page;
mod series;
mod summary;

pub use page::page;
pub use summary::{Checked, Conclusion, Summary};
