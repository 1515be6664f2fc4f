//! Servers that echo, by Rust's runtimes: these tests' own program, started once more.

use std::net::{Ipv6Addr, TcpListener};

use super::{PORT, Server, servers};
use crate::handoff_programs::Stage;

/// A variable that says that such a server is wanted.
const WANTED: &str = "WHARF_RUNTIMES_SERVER";
/// Threads of each.
const THREADS: usize = 4;

fn start(stage: &Stage, policy: &str, options: &[&str], name: &str) -> Option<Server> {
    let own = std::env::current_exe().unwrap();
    let name = format!("runtimes::rust::{name}");
    let words = ["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"];
    let words = [&[own.to_str().unwrap()], &words[..]].concat();
    let mut run = stage.wharf_run_with(policy, options, &words);
    run.env(WANTED, "1");
    servers::started(stage, run)
}

pub(super) fn start_tokio(stage: &Stage, policy: &str) -> Option<Server> {
    start(stage, policy, &[], "a_server_by_tokio")
}

pub(super) fn start_smol(stage: &Stage, policy: &str) -> Option<Server> {
    start(stage, policy, &[], "a_server_by_smol")
}

pub(super) fn start_smol_by_pairs(stage: &Stage, policy: &str) -> Option<Server> {
    start(stage, policy, &["--bypass", "pair"], "a_server_by_smol")
}

/// The listener, if a server is wanted.
fn listener() -> Option<TcpListener> {
    std::env::var_os(WANTED)?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    listener.set_nonblocking(true).unwrap();
    Some(listener)
}

#[test]
#[ignore = "the others run it, under `wharf run`"]
fn a_server_by_tokio() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let Some(listener) = listener() else { return };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                loop {
                    match stream.read(&mut bytes).await.unwrap() {
                        0 => return,
                        read => stream.write_all(&bytes[..read]).await.unwrap(),
                    }
                }
            });
        }
    });
}

#[test]
#[ignore = "the others run it, under `wharf run`"]
fn a_server_by_smol() {
    use async_io::Async;
    use futures_lite::{AsyncReadExt, AsyncWriteExt, future};

    let Some(listener) = listener() else { return };
    let executor = async_executor::Executor::new();
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| async_io::block_on(executor.run(future::pending::<()>())));
        }
        async_io::block_on(executor.run(async {
            let listener = Async::new(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let served = executor.spawn(async move {
                    let mut bytes = vec![0; 64 << 10];
                    loop {
                        match stream.read(&mut bytes).await.unwrap() {
                            0 => return,
                            read => stream.write_all(&bytes[..read]).await.unwrap(),
                        }
                    }
                });
                served.detach();
            }
        }));
    });
}
