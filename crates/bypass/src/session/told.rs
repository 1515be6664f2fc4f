//! What `wharf run` has told: where wharfs are, and by which policy connections are offered.

use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use handoff::policy::Policy;

/// See the module's documentation.
pub(super) struct Told {
    /// Where wharfs are: paths, or `@` and abstract names.
    pub(super) addresses: Vec<Vec<u8>>,
    /// Where more may be.
    pub(super) folders: Vec<Folder>,
    /// `None` for wharf's own.
    pub(super) policy: Option<Policy>,
    /// What goes from one connection to another by a pipe, the NIC may move by itself.
    pub(super) splices: bool,
    /// A supervisor answers calls that come past the library.
    pub(super) has_supervisor: bool,
}

/// Files of a folder, each of a wharf.
pub(super) struct Folder {
    /// Its path, with a slash; and the same that ends with a zero.
    pub(super) path: Vec<u8>,
    pub(super) path0: Vec<u8>,
    /// How their names begin and end.
    pub(super) prefix: Vec<u8>,
    pub(super) suffix: Vec<u8>,
}

static TOLD: OnceLock<Option<Told>> = OnceLock::new();

/// What the environment says, or said when the library was loaded: programs such as nginx clear it.
pub(super) fn told() -> &'static Option<Told> {
    TOLD.get_or_init(|| {
        let text = std::env::var_os("WHARF_HANDOFF")?.into_vec();
        let policy = std::env::var("WHARF_HANDOFF_POLICY").ok();
        let policy = policy.map(|text| text.parse()).transpose().ok()?;
        let is_on = |name: &str| std::env::var_os(name).is_some_and(|on| on == "1");
        let mut told = Told {
            addresses: Vec::new(),
            folders: Vec::new(),
            policy,
            splices: is_on("WHARF_HANDOFF_SPLICE"),
            has_supervisor: is_on("WHARF_HANDOFF_SUPERVISOR"),
        };
        // No name of an interface has a space.
        for one in text.split(|byte| *byte == b' ').filter(|one| !one.is_empty()) {
            match folder(one) {
                Some(folder) => told.folders.push(folder),
                None => told.addresses.push(one.to_vec()),
            }
        }
        Some(told)
    })
}

/// All sockets of a network namespace: `/run/wharf/INODE-*.handoff`. A `*` elsewhere is one of a name.
fn folder(text: &[u8]) -> Option<Folder> {
    const ALL: &[u8] = b"-*";
    let at = text.windows(ALL.len()).position(|part| part == ALL)?;
    let (begin, suffix) = (&text[..=at], &text[at + ALL.len()..]);
    let slash = begin.iter().rposition(|byte| *byte == b'/')?;
    let (path, prefix) = begin.split_at(slash + 1);
    if !suffix.starts_with(b".") || suffix.contains(&b'/') {
        return None;
    }
    let path0 = [path, &[0]].concat();
    Some(Folder { path: path.to_vec(), path0, prefix: prefix.to_vec(), suffix: suffix.to_vec() })
}
