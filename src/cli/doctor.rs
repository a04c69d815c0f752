//! `memshim doctor`: what will be seen here, what won't, and why.

use clap::Args;
use std::ffi::OsString;

/// Say what memshim will see here and what it won't, and why
#[derive(Args)]
pub struct Doctor {
    /// A program to look at as well
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<u8> {
        anyhow::bail!("not built yet")
    }
}
