//! An open store as Python holds it: closes once, reopens itself after a fork.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::errors::ClosedError;
use crate::config::StoreConfig;
use crate::error::Result;
use crate::read::MessageReader;
use crate::storage::{Env, RealEnv};

/// What a `Store` and everything that came from it share.
pub(super) struct Handle {
    path: PathBuf,
    config: StoreConfig,
    closed: AtomicBool,
    /// Locked only for a moment and with the interpreter attached: a fork then never finds it locked by a thread that the child
    /// lacks.
    opened: Mutex<Opened>,
}

struct Opened {
    /// The process that opened the reader.
    pid: u32,
    /// `None` once closed.
    reader: Option<Arc<MessageReader>>,
}

impl Handle {
    /// Opens the store; call it detached.
    pub(super) fn open(path: PathBuf, config: StoreConfig) -> Result<Self> {
        let reader = open_reader(&path, &config)?;
        Ok(Self {
            path,
            config,
            closed: AtomicBool::new(false),
            opened: Mutex::new(Opened {
                pid: std::process::id(),
                reader: Some(reader),
            }),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `ClosedError`.
    pub(super) fn expect_open(&self) -> PyResult<()> {
        if self.is_closed() {
            return Err(ClosedError::new_err(format!(
                "{} is closed: open it again with mqstore.open",
                self.path.display()
            )));
        }
        Ok(())
    }

    /// The reader, a new one if this process is a fork of the one that opened it.
    ///
    /// # Errors
    /// `ClosedError`, and in a fork those of opening.
    pub(super) fn reader(&self, py: Python<'_>) -> PyResult<Arc<MessageReader>> {
        self.expect_open()?;
        let pid = std::process::id();
        {
            let opened = self.opened();
            if let (Some(reader), true) = (&opened.reader, opened.pid == pid) {
                return Ok(reader.clone());
            }
        }
        let fresh = py.detach(|| open_reader(&self.path, &self.config))?;
        self.expect_open()?;
        let mut opened = self.opened();
        if opened.pid != pid {
            opened.pid = pid;
            opened.reader = Some(fresh.clone());
        }
        Ok(fresh)
    }

    /// Lets go of the reader; a second call does nothing.
    pub(super) fn close(&self, py: Python<'_>) {
        self.closed.store(true, Ordering::Release);
        let reader = self.opened().reader.take();
        py.detach(|| drop(reader));
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_reader(path: &Path, config: &StoreConfig) -> Result<Arc<MessageReader>> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    MessageReader::open(&env, path, config.clone()).map(Arc::new)
}
