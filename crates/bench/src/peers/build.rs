//! Builds the harnesses of `bench/peers`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// A file of `bench/peers`, by its path there.
macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../../bench/peers/", $path)))
    };
}

const GO_MODULE: [(&str, &str); 8] = [
    file!("go.mod"),
    file!("go.sum"),
    file!("workload/serve.go"),
    file!("workload/lro.go"),
    file!("workload/gso.go"),
    file!("gvisor/main.go"),
    file!("gvisor-tcp/main.go"),
    file!("wireguard-go/module.go"),
];
const WIREGUARD_GO: [(&str, &str); 2] =
    [file!("wireguard-go/peer_test.go"), file!("wireguard-go/gso_test.go")];
const DPDK: [(&str, &str); 5] = [
    file!("dpdk/Makefile"),
    file!("dpdk/peer.h"),
    file!("dpdk/main.c"),
    file!("dpdk/lro.c"),
    file!("dpdk/gso.c"),
];

const LWIP: [(&str, &str); 2] = [file!("lwip/Makefile"), file!("lwip/main.c")];

const VERBS: [(&str, &str); 6] = [
    file!("verbs/Makefile"),
    file!("verbs/peer.h"),
    file!("verbs/main.c"),
    file!("verbs/tcp.c"),
    file!("verbs/region.c"),
    file!("verbs/tell.c"),
];

const FABRIC: [(&str, &str); 5] = [
    file!("verbs/peer.h"),
    file!("verbs/region.c"),
    file!("verbs/tell.c"),
    file!("fabric/Makefile"),
    file!("fabric/main.c"),
];

const RDMA_WAN: [(&str, &str); 12] = [
    file!("verbs/peer.h"),
    file!("verbs/tell.c"),
    file!("rdma-wan/Makefile"),
    file!("rdma-wan/wan.h"),
    file!("rdma-wan/main.c"),
    file!("rdma-wan/verbs.c"),
    file!("rdma-wan/sockets.c"),
    file!("rdma-wan/latency.c"),
    file!("rdma-wan/progress.c"),
    file!("rdma-wan/cpu.c"),
    file!("rdma-wan/rendezvous.c"),
    file!("rdma-wan/work.c"),
];

const WIREGUARD_GO_MODULE: &str = "golang.zx2c4.com/wireguard";

/// `go test -overlay` with the harness among the tests of package `tun`, whose unexported functions
/// it calls; the package's own tests, which need more modules, are hidden. Go lays nothing over
/// its cache of modules, so the module is used by a link to it.
pub(super) fn wireguard_go(scratch: &Scratch) -> Result<PathBuf, String> {
    scratch.write(&GO_MODULE)?;
    scratch.write(&WIREGUARD_GO)?;
    let module = output(go(scratch).args(["mod", "download", "-json", WIREGUARD_GO_MODULE]))?;
    let module: Value = serde_json::from_str(&module).map_err(|error| error.to_string())?;
    let Some(directory) = module.get("Dir").and_then(Value::as_str) else {
        return Err(format!("`go mod download` gave no directory: {module}"));
    };
    let link = scratch.path("wireguard");
    symlink(directory, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    let replace = format!("{WIREGUARD_GO_MODULE}=./wireguard");
    output(go(scratch).args(["mod", "edit", "-replace", &replace]))?;
    let harness = WIREGUARD_GO.map(|(path, _)| scratch.path(path));
    let overlay = overlay(&link.join("tun"), &harness)?;
    scratch.write(&[("overlay.json", &overlay)])?;
    let program = scratch.path("wireguard-go-peer");
    let mut test = go(scratch);
    test.args(["test", "-c", "-overlay", "overlay.json", "-o"]).arg(&program);
    output(test.arg(format!("{WIREGUARD_GO_MODULE}/tun")))?;
    Ok(program)
}

/// Hides the tests of a package and puts the files of a harness in their place.
fn overlay(package: &Path, harness: &[PathBuf]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", package.display());
    let mut replace = serde_json::Map::new();
    for entry in fs::read_dir(package).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_string_lossy().ends_with("_test.go") {
            replace.insert(package.join(name).display().to_string(), "".into());
        }
    }
    for (n, file) in harness.iter().enumerate() {
        let place = package.join(format!("wharf{n}_test.go"));
        replace.insert(place.display().to_string(), file.display().to_string().into());
    }
    Ok(json!({ "Replace": replace }).to_string())
}

pub(super) fn gvisor(scratch: &Scratch) -> Result<PathBuf, String> {
    scratch.write(&GO_MODULE)?;
    let program = scratch.path("gvisor-peer");
    output(go(scratch).args(["build", "-o"]).arg(&program).arg("./gvisor"))?;
    Ok(program)
}

/// gVisor's TCP.
pub(super) fn gvisor_tcp(scratch: &Scratch) -> Result<PathBuf, String> {
    scratch.write(&GO_MODULE)?;
    let program = scratch.path("gvisor-tcp-peer");
    output(go(scratch).args(["build", "-o"]).arg(&program).arg("./gvisor-tcp"))?;
    Ok(program)
}

/// lwIP's TCP.
pub(super) fn lwip(scratch: &Scratch) -> Result<PathBuf, String> {
    if output(Command::new("pkg-config").args(["--exists", "lwip"])).is_err() {
        return Err("apt install liblwip-dev pkg-config gcc make".to_owned());
    }
    of_c(scratch, &LWIP, "lwip", "lwip-peer")
}

/// A program of verbs.
pub(super) fn verbs(scratch: &Scratch) -> Result<PathBuf, String> {
    of_verbs(scratch, &VERBS, "verbs", "verbs-peer")
}

/// A program of verbs for the paper's figures on RDMA.
pub(super) fn rdma_wan(scratch: &Scratch) -> Result<PathBuf, String> {
    of_verbs(scratch, &RDMA_WAN, "rdma-wan", "rdma-wan-peer")
}

fn of_verbs(
    scratch: &Scratch,
    files: &[(&str, &str)],
    directory: &str,
    program: &str,
) -> Result<PathBuf, String> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return Err("the program of verbs is built on the spot: apt install librdmacm-dev \
                    libibverbs-dev gcc make"
            .to_owned());
    }
    of_c(scratch, files, directory, program)
}

/// libfabric's TCP.
pub(super) fn fabric(scratch: &Scratch) -> Result<PathBuf, String> {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        return Err("apt install libfabric-dev gcc make".to_owned());
    }
    of_c(scratch, &FABRIC, "fabric", "fabric-peer")
}

/// A program that `make` makes of these files.
fn of_c(
    scratch: &Scratch,
    files: &[(&str, &str)],
    directory: &str,
    program: &str,
) -> Result<PathBuf, String> {
    scratch.write(files)?;
    output(Command::new("make").args(["--quiet", "-C"]).arg(scratch.path(directory)))?;
    Ok(scratch.path(directory).join(program))
}

pub(super) fn dpdk(scratch: &Scratch) -> Result<PathBuf, String> {
    if output(Command::new("pkg-config").args(["--exists", "libdpdk"])).is_err() {
        return Err("apt install libdpdk-dev pkg-config gcc make".to_owned());
    }
    of_c(scratch, &DPDK, "dpdk", "dpdk-peer")
}

fn go(scratch: &Scratch) -> Command {
    let mut go = Command::new("go");
    go.current_dir(&scratch.0).env("GOWORK", "off");
    go
}

/// What a program wrote, or the last line of its error output if it failed.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no `{name}` in PATH"),
        _ => format!("{name}: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("{name}: {last}"))
}

/// A directory that goes when this does.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Result<Scratch, String> {
        let name = format!("wharf-bench-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Fails if another process made one of that name.
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, files: &[(&str, &str)]) -> Result<(), String> {
        for (name, text) in files {
            let path = self.path(name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, text))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
