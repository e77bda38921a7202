//! Where log lines go.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// A node logs to stderr.
pub(crate) fn start_for_a_node(config: LogConfig) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(config.filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// A command says on stderr, in one short line, why it takes long.
pub(crate) fn start_for_a_call() {
    let filter = EnvFilter::default().add_directive(LevelFilter::WARN.into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}
