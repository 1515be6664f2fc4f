//! The guest: Debian's kernel with siw built from Debian's source of it, and a few of this machine's programs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{is_installed, output, run};

/// A program or a file that this needs, and its Debian package.
const NEEDS: [(&str, &str); 18] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("depmod", "kmod"),
    ("cpio", "cpio"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("xz", "xz-utils"),
    ("busybox", "busybox"),
    ("rdma", "iproute2"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("tc", "iproute2"),
    ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("rping", "rdmacm-utils"),
    ("ib_write_bw", "perftest"),
    ("qperf", "qperf"),
];
/// What the guest has of this machine, beside the libraries that they need.
const PROGRAMS: [&str; 10] = [
    "rdma",
    "tc",
    "rping",
    "ib_write_bw",
    "ib_read_bw",
    "ib_send_bw",
    "ib_write_lat",
    "ib_read_lat",
    "ib_send_lat",
    "qperf",
];
/// The program that does what it may not, which is built here.
const DENIED: &str = "siw-denied";
/// libibverbs and glibc load these by name.
const LOADED: [&str; 2] = ["libibverbs/libsiw-rdmav34.so", "libgcc_s.so.1"];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const DRIVER: &str = "etc/libibverbs.d/siw.driver";
/// Where the source has it.
const SOURCE: &str = "drivers/infiniband/sw/siw";
/// In order; each after what it depends on.
const MODULES: [&str; 8] = [
    "crc32c_generic",
    "crc32c_intel",
    "e1000",
    "sch_netem",
    "siw",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
];
/// siw as it is: it asks by revision 2 of MPA, and for no CRCs.
pub(super) const REVISION_2: Module = Module { file: "siw.ko", changes: &[] };
/// It asks by revision 1.
pub(super) const REVISION_1: Module = Module {
    file: "siw-revision-1.ko",
    changes: &[("mpa_version = MPA_REVISION_2", "mpa_version = MPA_REVISION_1")],
};
/// It asks for CRCs, and offers to say that it is ready (RFC 6581 section 9.2).
pub(super) const WITH_CRC: Module = Module {
    file: "siw-crc-ready.ko",
    changes: &[
        ("const bool mpa_crc_required;", "const bool mpa_crc_required = true;"),
        ("const bool peer_to_peer;", "const bool peer_to_peer = true;"),
    ],
};

/// A build of siw, with changes of its source where its parameters cannot be set.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

/// Each command has a number, which its answer ends with: `=== NUMBER STATUS`. `siw=` of the kernel's words names the
/// build of siw.
///
/// What the guest sends comes late: siw has missed what comes right behind its reply, and a program's server did not listen yet,
/// where a client was at once there.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin:/usr/bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
dmesg -n 1; stty -echo -onlcr
for word in $(cat /proc/cmdline); do case $word in siw=*) siw=${word#siw=};; esac; done
while read m; do test $m = siw.ko && m=$siw; insmod /modules/$m; done < /modules/list
until test -e /sys/class/net/eth0; do sleep 1; done
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
tc qdisc add dev eth0 root netem delay 20ms limit 10000
until rdma link | grep -q ACTIVE; do rdma link add siw0 type siw netdev eth0; sleep 1; done
sleep 1
echo READY
while read -r n line; do sh -c "$line" < /dev/null 2>&1; printf '\n=== %s %s\n' $n $?; done
poweroff -f
"#;

/// What QEMU boots.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
}

/// What this machine lacks, as the command that installs it.
pub(super) fn lacks() -> Option<String> {
    let is_missing = |(program, _): &&(&str, &str)| !is_installed(program);
    let packages: Vec<&str> =
        NEEDS.iter().filter(is_missing).map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| format!("apt install {}", packages.join(" ")))
}

/// Builds what is not built yet, in this directory.
pub(super) fn image(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let packages = Packages::of(directory)?;
    packages.build_siw(&[&REVISION_2, &REVISION_1, &WITH_CRC])?;
    let mut compile = Command::new("gcc");
    compile.args(["-Wall", "-O1", "-x", "c", "-", "-o"]).arg(directory.join(DENIED));
    piped(compile.args(["-lrdmacm", "-libverbs"]), include_bytes!("denied.c"))?;
    packages.initramfs(&packages.image().initramfs)
}

/// What was built there.
pub(super) fn built(directory: &Path) -> Result<Image, String> {
    Ok(Packages::of(directory)?.image())
}

/// Debian's packages of a kernel.
struct Packages {
    directory: PathBuf,
    unpacked: PathBuf,
    /// Of the kernel, such as `6.1.0-37-amd64`.
    release: String,
}

impl Packages {
    /// Of the newest kernel; fetched and unpacked here, where nothing of them is installed.
    fn of(directory: &Path) -> Result<Self, String> {
        let unpacked = directory.join("unpacked");
        let release = directory.join("release");
        if !release.exists() {
            let [image, headers] = ["linux-image-amd64", "linux-headers-amd64"].map(dependency);
            let (image, headers) = (image?, headers?);
            let mut packages = dependencies(&headers)?;
            packages.extend([image.clone(), headers, "linux-source-6.1".to_owned()]);
            let mut fetch = Command::new("apt-get");
            fetch.current_dir(directory).args(["download", "-q"]).args(&packages);
            run(&mut fetch)?;
            for entry in fs::read_dir(directory).map_err(|error| error.to_string())?.flatten() {
                if entry.path().extension().is_some_and(|extension| extension == "deb") {
                    let mut unpack = Command::new("dpkg-deb");
                    run(unpack.arg("-x").arg(entry.path()).arg(&unpacked))?;
                }
            }
            let name = image.trim_start_matches("linux-image-");
            write(&release, name)?;
        }
        let release = fs::read_to_string(release).map_err(|error| error.to_string())?;
        Ok(Packages { directory: directory.to_owned(), unpacked, release })
    }

    fn image(&self) -> Image {
        Image {
            kernel: self.unpacked.join(format!("boot/vmlinuz-{}", self.release)),
            initramfs: self.directory.join("initramfs"),
        }
    }

    /// Builds those of them that are not built yet.
    fn build_siw(&self, modules: &[&Module]) -> Result<(), String> {
        let is_missing = |module: &&&Module| !self.directory.join(module.file).exists();
        let missing: Vec<&&Module> = modules.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let archive = self.unpacked.join("usr/src/linux-source-6.1.tar.xz");
        let top = format!("linux-source-6.1/{SOURCE}");
        let mut unpack = Command::new("tar");
        unpack.current_dir(&self.directory).arg("-xJf").arg(archive).arg(&top);
        run(&mut unpack)?;
        let source = self.directory.join(top);
        let main = source.join("siw_main.c");
        let original = fs::read_to_string(&main).map_err(|error| error.to_string())?;
        for Module { file, changes } in missing {
            let mut text = original.clone();
            for (from, to) in *changes {
                if !text.contains(from) {
                    return Err(format!("siw_main.c has no `{from}`"));
                }
                text = text.replace(from, to);
            }
            // It is newer than what was built of another.
            write(&main, &text)?;
            let mut build = Command::new("make");
            build.arg("--quiet").arg("-C").arg(self.headers()?);
            build.arg(format!("M={}", source.display())).args(["CONFIG_RDMA_SIW=m", "modules"]);
            run(&mut build)?;
            copy(&source.join("siw.ko"), &self.directory.join(file))?;
        }
        Ok(())
    }

    /// The headers name those that all flavours share, and the tools, by where they would be installed.
    fn headers(&self) -> Result<PathBuf, String> {
        let sources = self.unpacked.join("usr/src");
        let headers = sources.join(format!("linux-headers-{}", self.release));
        let makefile = headers.join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(|error| error.to_string())?;
        let own = format!("{}/", sources.display());
        if !text.contains(&own) {
            write(&makefile, &text.replace("/usr/src/", &own))?;
        }
        Ok(headers)
    }

    fn initramfs(&self, to: &Path) -> Result<(), String> {
        let root = self.directory.join("root");
        // What is left of one that did not end.
        let _ = fs::remove_dir_all(&root);
        self.modules(&root)?;
        let mut files: Vec<String> = [DRIVER].map(|file| format!("/{file}")).to_vec();
        files.extend(LOADED.map(|library| format!("/{LIBRARIES}/{library}")));
        for program in PROGRAMS {
            let path = output(as_root("sh").args(["-c", &format!("command -v {program}")]))?;
            copy(Path::new(path.trim()), &root.join("usr/bin").join(program))?;
            files.extend(libraries(path.trim())?);
        }
        copy(&self.directory.join(DENIED), &root.join("usr/bin").join(DENIED))?;
        files.extend(libraries(&format!("/{LIBRARIES}/{}", LOADED[0]))?);
        let busybox = output(Command::new("sh").args(["-c", "command -v busybox"]))?;
        copy(Path::new(busybox.trim()), &root.join("bin/busybox"))?;
        // That of busybox-static needs none, which ldd(1) calls an error.
        files.extend(libraries(busybox.trim()).unwrap_or_default());
        for file in &files {
            copy(Path::new(file), &root.join(file.trim_start_matches('/')))?;
        }
        for directory in ["dev", "proc", "sys", "tmp"] {
            let path = root.join(directory);
            fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        write(&root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
        write(&root.join("init"), INIT)?;
        let pack = "chmod +x init && for name in $(bin/busybox --list); do \
                    test -e bin/$name || ln -s busybox bin/$name; done && \
                    find . | cpio --quiet -o -H newc > ../initramfs.new && \
                    mv ../initramfs.new \"$0\"";
        run(Command::new("sh").current_dir(&root).args(["-c", pack]).arg(to))
    }

    /// The modules, with those that they depend on, and their order.
    fn modules(&self, root: &Path) -> Result<(), String> {
        let extra = self.unpacked.join("lib/modules").join(&self.release).join("extra");
        copy(&self.directory.join("siw.ko"), &extra.join("siw.ko"))?;
        run(as_root("depmod").arg("-b").arg(&self.unpacked).arg(&self.release))?;
        let mut list: Vec<String> = Vec::new();
        for module in MODULES {
            let mut show = as_root("modprobe");
            show.arg("-d").arg(&self.unpacked).args([
                "-S",
                &self.release,
                "--show-depends",
                module,
            ]);
            for line in output(&mut show)?.lines() {
                let Some(path) = line.strip_prefix("insmod ") else { continue };
                let path = Path::new(path.trim());
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if !list.contains(&name) {
                    copy(path, &root.join("modules").join(&name))?;
                    list.push(name);
                }
            }
        }
        for module in [&REVISION_1, &WITH_CRC] {
            copy(&self.directory.join(module.file), &root.join("modules").join(module.file))?;
        }
        write(&root.join("modules/list"), &(list.join("\n") + "\n"))
    }
}

/// What a package that stands for another depends on.
fn dependency(package: &str) -> Result<String, String> {
    let none = || format!("apt knows no {package}");
    dependencies(package)?.into_iter().next().ok_or_else(none)
}

/// What a package of the kernel depends on, of the kernel's.
fn dependencies(package: &str) -> Result<Vec<String>, String> {
    let told = output(Command::new("apt-cache").args(["depends", package]))?;
    let names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(names.filter(|name| name.starts_with("linux-")).map(str::to_owned).collect())
}

/// A program that is looked for as root would: ordinary users do not look where `depmod` and `tc` are.
fn as_root(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// The libraries that a program or a library needs.
fn libraries(of: &str) -> Result<Vec<String>, String> {
    let told = output(Command::new("ldd").arg(of))?;
    let paths = told.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(|path| path.trim_end_matches(':').to_owned()).collect())
}

/// Runs a program with this as its input.
fn piped(command: &mut Command, input: &[u8]) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(text)?;
    child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input)).map_err(text)?;
    let status = child.wait().map_err(text)?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = made.and_then(|()| fs::copy(from, to)).map(drop);
    copied.map_err(|error| format!("{}: {error}", from.display()))
}
