//! Transfers by `pread` and `pwrite` on ordinary threads, for kernels and containers that refuse
//! `io_uring`.
//!
//! The driver puts transfers into `jobs`; workers take them, block in the kernel, and put them
//! into `ended`. Both queues are bounded by the depth, which is the number of workers. Everybody
//! sleeps on a condition variable while there is nothing to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::io::Errno;

use super::backend::{Backend, Ended, Patience, Transfer, Waker, Work};
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, lock, wait};

pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    job_added: Condvar,
    ended: Mutex<EndedJobs>,
    job_ended: Condvar,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Transfer>,
    closed: bool,
}

#[derive(Default)]
struct EndedJobs {
    list: Vec<Ended>,
    woken: bool,
}

impl Threads {
    pub(super) fn open(count: usize) -> Result<(Self, Arc<dyn Waker>)> {
        let shared = Arc::new(Shared::default());
        let mut threads = Self { shared: Arc::clone(&shared), workers: Vec::new() };
        for number in 0..count {
            let shared = Arc::clone(&shared);
            let worker = std::thread::Builder::new()
                .name(format!("ferry-io-{number}"))
                .spawn(move || shared.work())
                .map_err(|error| Error::from_io(error, "can't start an I/O thread"))?;
            threads.workers.push(worker);
        }
        Ok((threads, shared))
    }
}

impl Shared {
    fn work(&self) {
        while let Some(mut transfer) = self.next_job() {
            let result = carry_out(&mut transfer);
            lock(&self.ended).list.push(Ended { transfer, result });
            self.job_ended.notify_one();
        }
    }

    fn next_job(&self) -> Option<Transfer> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(transfer) = jobs.queue.pop_front() {
                return Some(transfer);
            }
            if jobs.closed {
                return None;
            }
            jobs = wait(&self.job_added, jobs, None).0;
        }
    }
}

/// Moves the bytes of a transfer, on the calling thread.
pub(super) fn carry_out(transfer: &mut Transfer) -> Result<usize, Errno> {
    let Some(descriptor) = transfer.file.descriptor(transfer.direct) else {
        return Err(Errno::BADF);
    };
    match &mut transfer.work {
        Work::Read(part) => {
            let target = &mut part.as_mut().ok_or(Errno::FAULT)?[..transfer.len];
            rustix::io::pread(descriptor, target, transfer.offset)
        }
        Work::Write(part) => rustix::io::pwrite(descriptor, &part[..transfer.len], transfer.offset),
        Work::Sync => rustix::fs::fdatasync(descriptor).map(|()| 0),
    }
}

impl Backend for Threads {
    fn depth(&self) -> usize {
        self.workers.len()
    }

    fn start(&mut self, transfer: Transfer) {
        lock(&self.shared.jobs).queue.push_back(transfer);
        self.shared.job_added.notify_one();
    }

    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()> {
        let deadline = patience.deadline();
        let mut jobs = lock(&self.shared.ended);
        let mut in_time = patience != Patience::None;
        while in_time && jobs.list.is_empty() && !jobs.woken {
            (jobs, in_time) = wait(&self.shared.job_ended, jobs, deadline);
        }
        jobs.woken = false;
        ended.append(&mut jobs.list);
        Ok(())
    }
}

impl Waker for Shared {
    fn wake(&self) {
        lock(&self.ended).woken = true;
        self.job_ended.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.jobs).closed = true;
        self.shared.job_added.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing left to wait for.
            let _ = worker.join();
        }
    }
}
