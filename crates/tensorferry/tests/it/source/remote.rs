//! Samples in an S3 store and on a web server, both on this machine.
//!
//! The server is `s3s-fs`, which checks signatures. In front of it stands a gate that can refuse,
//! stall and count, so that the faults of a network happen when they are asked for.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use serde_json::{Value, json};
use tensorferry::Kind;

use super::{content, laws, names, opened, refused, tar::packed, write_all};

const KEY: &str = "AKEXAMPLE";
const SECRET: &str = "a secret";

/// A bucket with a server, and a gate before it.
struct Bucket {
    folder: tempfile::TempDir,
    gate: Gate,
}

impl Bucket {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        let server = serve(folder.path());
        Self { folder, gate: Gate::new(server) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("bucket")
    }

    fn options(&self) -> Value {
        json!({
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "endpoint": format!("http://{}", self.gate.address),
        })
    }
}

/// Starts the S3 server on a thread of its own; it ends with the process.
fn serve(root: &Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let http = auto::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
    });
    told.recv().unwrap()
}

/// Passes connections on, or does worse.
struct Gate {
    address: SocketAddr,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// So many connections are answered with an error of the server.
    errors: AtomicUsize,
    /// Connections are taken and never answered.
    stalls: AtomicBool,
    connections: AtomicUsize,
    held: Mutex<Vec<TcpStream>>,
}

impl Gate {
    fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        thread::spawn(move || {
            for client in listener.incoming() {
                let faults = Arc::clone(&shared);
                thread::spawn(move || faults.meet(client.unwrap(), server));
            }
        });
        Self { address, faults }
    }
}

impl Faults {
    fn meet(&self, mut client: TcpStream, server: SocketAddr) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        if self.stalls.load(Ordering::SeqCst) {
            return self.held.lock().unwrap().push(client);
        }
        let take = |left: usize| left.checked_sub(1);
        if self.errors.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            let _ = client.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = client.write_all(answer.as_bytes());
            return;
        }
        let server = TcpStream::connect(server).unwrap();
        // Small answers would wait for one another.
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || pass(from, to));
        pass(server, client);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn sources_in_a_bucket_keep_the_laws() {
    let bucket = Bucket::new();
    let mut expected = Vec::new();
    let mut members = Vec::new();
    for at in 0..6_usize {
        let sample = vec![at as u8; at * 30_000];
        write_all(&bucket.path(), &[(&format!("set/{}/{at}.jpg", at / 3), &sample)]);
        members.push((format!("{at}.cls"), at.to_string().into_bytes()));
        members.push((format!("{at}.jpg"), sample.clone()));
        expected.push(vec![sample, at.to_string().into_bytes()]);
    }
    write_all(
        &bucket.path(),
        &[("t-0.tar", &packed(&members[..4])), ("t-1.tar", &packed(&members[4..]))],
    );
    let options = bucket.options();
    let single: Vec<_> = expected.iter().map(|sample| vec![sample[0].clone()]).collect();
    let open = |mut spec: Value| {
        spec["storage_options"] = options.clone();
        opened(&spec).unwrap()
    };
    let folder = open(json!({"kind": "folder", "root": "s3://bucket/set"}));
    assert_eq!(folder.classes(), ["0", "1"]);
    assert_eq!(names(&*folder, "s3://bucket/set")[3], "1/3.jpg");
    laws::check("folder in a bucket", &*folder, &single);
    let files = open(json!({"kind": "files", "paths": "s3://bucket/set/*/*.jpg"}));
    laws::check("files in a bucket", &*files, &single);
    let list: Vec<_> = (0..6).map(|at| format!("s3://bucket/set/{}/{at}.jpg", at / 3)).collect();
    laws::check("listed", &*open(json!({"kind": "files", "paths": list})), &single);
    for shards in ["s3://bucket/t-{0..1}.tar", "s3://bucket/t-*.tar"] {
        let tar = open(json!({"kind": "tar", "shards": shards}));
        laws::check(shards, &*tar, &expected);
    }
}

#[test]
fn wrong_credentials_are_told_with_what_to_set() {
    let bucket = Bucket::new();
    write_all(&bucket.path(), &[("a.npy", b"a")]);
    let mut options = bucket.options();
    options["aws_secret_access_key"] = json!("another");
    for spec in [
        json!({"kind": "files", "paths": ["s3://bucket/a.npy"], "storage_options": options}),
        json!({"kind": "folder", "root": "s3://bucket/a", "storage_options": options}),
        json!({"kind": "tar", "shards": "s3://bucket/a.tar", "storage_options": options}),
    ] {
        let error = refused(&spec);
        assert_eq!(error.kind(), Kind::PermissionDenied, "{error}");
        let told = error.to_string();
        assert!(
            told.starts_with("the store refuses our credentials; set AWS_ACCESS_KEY_ID"),
            "{told}"
        );
        assert!(!told.contains("another") && !told.contains(SECRET), "no secret is shown: {told}");
    }
}

#[test]
fn what_is_missing_fails_alone_and_a_bucket_that_is_missing_fails_all() {
    let bucket = Bucket::new();
    write_all(&bucket.path(), &[("a.npy", b"a")]);
    let paths = json!(["s3://bucket/gone.npy", "s3://bucket/a.npy"]);
    let spec = json!({"kind": "files", "paths": paths, "storage_options": bucket.options()});
    let source = opened(&spec).unwrap();
    let error = source.fetch(0).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("(object: s3://bucket/gone.npy)"), "{error}");
    assert_eq!(content(&*source, 1), [b"a"]);
    write_all(&bucket.path(), &[("a.npy", b"longer")]);
    assert_eq!(source.fetch(1).unwrap_err().kind(), Kind::Corrupt, "changed since it was listed");

    let spec = json!({"kind": "tar", "shards": "s3://none/*.tar",
                      "storage_options": bucket.options()});
    assert_eq!(refused(&spec).kind(), Kind::NotFound);
}

#[test]
fn errors_of_the_server_are_tried_again_a_few_times() {
    let bucket = Bucket::new();
    write_all(&bucket.path(), &[("a.npy", b"a")]);
    let spec = json!({"kind": "files", "paths": "s3://bucket/*.npy",
                      "storage_options": bucket.options()});
    bucket.gate.faults.errors.store(2, Ordering::SeqCst);
    let source = opened(&spec).unwrap();
    assert_eq!(bucket.gate.faults.errors.load(Ordering::SeqCst), 0, "both errors were met");
    assert_eq!(content(&*source, 0), [b"a"]);

    let mut options = bucket.options();
    options["max_retries"] = json!("1");
    bucket.gate.faults.errors.store(1000, Ordering::SeqCst);
    let error = refused(&json!({"kind": "files", "paths": "s3://bucket/*.npy",
                                "storage_options": options}));
    assert_eq!(error.kind(), Kind::Io, "{error}");
    assert!(error.is_retryable());
    assert_eq!(bucket.gate.faults.errors.load(Ordering::SeqCst), 998, "one retry and no more");
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let bucket = Bucket::new();
    bucket.gate.faults.stalls.store(true, Ordering::SeqCst);
    let mut options = bucket.options();
    options["max_retries"] = json!("1");
    options["read_timeout"] = json!("50ms");
    let spec = json!({"kind": "files", "paths": "s3://bucket/*.npy", "storage_options": options});
    let error = refused(&spec);
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(error.is_retryable());
    assert!(error.to_string().starts_with("the store doesn't answer in time"), "{error}");
    assert_eq!(bucket.gate.faults.connections.load(Ordering::SeqCst), 2, "one retry");
}

#[test]
fn nobody_at_the_other_end_is_told_as_such() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = json!({"max_retries": "0"});
    let paths = json!([format!("http://{address}/a.npy")]);
    let error = refused(&json!({"kind": "files", "paths": paths, "storage_options": options}));
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().starts_with("can't connect to the store"), "{error}");
}

/// A web server with one file, which knows HEAD and GET and, if it is told to, ranges.
fn web(file: &'static [u8], ranges: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            thread::spawn(move || answer(&mut client.unwrap(), file, ranges));
        }
    });
    address
}

fn answer(client: &mut TcpStream, file: &[u8], ranges: bool) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.push(byte[0]);
    }
    let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
    let asked = request.split("range: bytes=").nth(1).filter(|_| ranges);
    let (status, body) = match asked.and_then(|rest| rest.split("\r\n").next()?.split_once('-')) {
        Some((first, last)) => {
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let range = format!("Content-Range: bytes {first}-{last}/{}\r\n", file.len());
            (format!("206 Partial\r\n{range}"), &file[first..=last])
        }
        None => ("200 Fine\r\n".to_owned(), file),
    };
    let head = format!(
        "HTTP/1.1 {status}Content-Length: {}\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let _ = client.write_all(head.as_bytes());
    if request.starts_with("get ") {
        let _ = client.write_all(body);
    }
}

#[test]
fn a_web_server_gives_files_and_shards_that_are_named() {
    let tar: &'static [u8] = packed(&[("0.jpg", "image"), ("0.cls", "7")]).leak();
    let address = web(tar, true);
    let source =
        opened(&json!({"kind": "tar", "shards": format!("http://{address}/a.tar")})).unwrap();
    laws::check("web", &*source, &[vec![b"image".to_vec(), b"7".to_vec()]]);
    let files = json!({"kind": "files", "paths": [format!("http://{address}/x.npy")]});
    laws::check("web", &*opened(&files).unwrap(), &[vec![tar.to_vec()]]);

    let error = refused(&json!({"kind": "files", "paths": [format!("http://{address}/x?sig=1")]}));
    assert!(error.to_string().starts_with("an address with a query can't be read"), "{error}");

    let plain = web(tar, false);
    let error = refused(&json!({"kind": "tar", "shards": format!("http://{plain}/a.tar")}));
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().starts_with("the server can't send parts of a file"), "{error}");
    let error = refused(&json!({"kind": "folder", "root": format!("http://{plain}/a")}));
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().starts_with("a web server can't list its files"), "{error}");
}
