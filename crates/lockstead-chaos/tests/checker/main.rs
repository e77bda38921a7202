//! The checker is checked: what is right is accepted, what is wrong is rejected, with the right name.

mod clients;
mod mutated;
mod random;
mod recorded;
mod service;
