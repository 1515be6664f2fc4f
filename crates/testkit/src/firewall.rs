//! Rules of nftables for tests, without nft(8).

use std::io;

use netlink_sys::{Socket, SocketAddr};

/// linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.
const NETLINK_NETFILTER: isize = 12;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFPROTO_INET: u8 = 1;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLA_F_NESTED: u16 = 0x8000;
const NLMSG_ERROR: u16 = 2;
const NAME: &[u8] = b"test\0";

/// What packets are kept from, or not, by conntrack's states (`NF_CT_STATE_BIT`), or all of them.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// All are accepted.
    Accept,
    /// `ct state established accept`.
    AcceptEstablished,
    /// `ct state invalid drop`.
    DropInvalid,
    /// `redirect to :port`, in a chain of [`Kind::Nat`] at [`Hook::Prerouting`]: whatever port new connections are for.
    Redirect(u16),
}

/// Hooks of a host (linux/netfilter.h).
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// What comes, before its route is known.
    Prerouting = 0,
    /// What is for this host.
    Input = 1,
    /// What passes through.
    Forward = 2,
    /// What is from this host.
    Output = 3,
}

/// What chains are for: the second sees the first packet of a connection alone.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Filters packets.
    Filter,
    /// Translates addresses.
    Nat,
}

/// Makes a table of both versions with a chain of a kind at each of these hooks, each with these rules, in the calling thread's
/// network namespace. What no rule decides about is accepted.
///
/// # Errors
/// The kernel's error, as of one that has no nftables.
pub fn add(kind: Kind, hooks: &[Hook], rules: &[Rule]) -> io::Result<()> {
    let mut batch = Batch::begin();
    let create = NLM_F_CREATE | NLM_F_APPEND;
    batch.put(NFT_MSG_NEWTABLE, NLM_F_CREATE, &attribute(1, NAME));
    for hook in hooks {
        let number = attribute(1, &(*hook as u32).to_be_bytes());
        let hooked = [number, attribute(2, &0_u32.to_be_bytes())].concat();
        let name = [hook.name(), "\0"].concat();
        let table = attribute(1, NAME);
        let chain = [
            table.clone(),
            attribute(3, name.as_bytes()),
            attribute(4 | NLA_F_NESTED, &hooked),
            attribute(7, kind.name()),
        ];
        batch.put(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &chain.concat());
        for rule in rules {
            let expressions = attribute(4 | NLA_F_NESTED, &rule.expressions());
            let rule = [table.clone(), attribute(2, name.as_bytes()), expressions].concat();
            batch.put(NFT_MSG_NEWRULE, create, &rule);
        }
    }
    batch.send()
}

/// Removes what [`add`] has made.
///
/// # Errors
/// The kernel's error: `NotFound` if there is nothing.
pub fn remove() -> io::Result<()> {
    let mut batch = Batch::begin();
    batch.put(NFT_MSG_DELTABLE, 0, &attribute(1, NAME));
    batch.send()
}

impl Kind {
    fn name(self) -> &'static [u8] {
        match self {
            Kind::Filter => b"filter\0",
            Kind::Nat => b"nat\0",
        }
    }
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
        }
    }
}

impl Rule {
    fn expressions(self) -> Vec<u8> {
        const ACCEPT: u32 = 1;
        const DROP: u32 = 0;
        match self {
            Rule::Accept => verdict(ACCEPT),
            Rule::AcceptEstablished => [state(1 << 1), verdict(ACCEPT)].concat(),
            Rule::DropInvalid => [state(1), verdict(DROP)].concat(),
            Rule::Redirect(port) => redirect(port),
        }
    }
}

/// Goes on if conntrack's state has this bit.
fn state(bit: u32) -> Vec<u8> {
    const REGISTER: u32 = 1;
    let word = |kind, value: u32| attribute(kind, &value.to_be_bytes());
    let value =
        |kind: u16, value: u32| attribute(kind | NLA_F_NESTED, &attribute(1, &value.to_ne_bytes()));
    let ct = [word(1, REGISTER), word(2, 0)].concat();
    let bitwise = [word(1, REGISTER), word(2, REGISTER), word(3, 4), value(4, bit), value(5, 0)];
    let not_zero = [word(1, REGISTER), word(2, 1), value(3, 0)].concat();
    let all = [("ct", ct), ("bitwise", bitwise.concat()), ("cmp", not_zero)];
    all.iter().flat_map(|(name, data)| expression(name, data)).collect()
}

fn redirect(port: u16) -> Vec<u8> {
    const REGISTER: u32 = 8;
    let register = attribute(1, &REGISTER.to_be_bytes());
    let port = attribute(2 | NLA_F_NESTED, &attribute(1, &port.to_be_bytes()));
    let load = expression("immediate", &[register.clone(), port].concat());
    [load, expression("redir", &register)].concat()
}

fn verdict(code: u32) -> Vec<u8> {
    let code = attribute(2 | NLA_F_NESTED, &attribute(1, &code.to_be_bytes()));
    let data = [attribute(1, &0_u32.to_be_bytes()), attribute(2 | NLA_F_NESTED, &code)].concat();
    expression("immediate", &data)
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let name = attribute(1, [name, "\0"].concat().as_bytes());
    attribute(1 | NLA_F_NESTED, &[name, attribute(2 | NLA_F_NESTED, data)].concat())
}

/// `struct nlattr`, the value, and padding to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(((4 + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// One transaction.
struct Batch {
    bytes: Vec<u8>,
    messages: usize,
}

impl Batch {
    fn begin() -> Self {
        let mut batch = Batch { bytes: Vec::new(), messages: 0 };
        batch.message(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]);
        batch
    }

    fn put(&mut self, kind: u16, flags: u16, body: &[u8]) {
        self.messages += 1;
        let kind = NFNL_SUBSYS_NFTABLES << 8 | kind;
        self.message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, NFPROTO_INET, 0, body);
    }

    /// `struct nlmsghdr`, `struct nfgenmsg`, attributes.
    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, body: &[u8]) {
        self.bytes.extend(((16 + 4 + body.len()) as u32).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(body);
    }

    fn send(mut self) -> io::Result<()> {
        self.message(NFNL_MSG_BATCH_END, NLM_F_REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]);
        let socket = Socket::new(NETLINK_NETFILTER)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&self.bytes, 0)?;
        for _ in 0..self.messages {
            let mut answer = Vec::with_capacity(4096);
            socket.recv(&mut answer, 0)?;
            let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
            let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
            match (kind, word(16)) {
                (Some(NLMSG_ERROR), Some(0)) => {}
                (Some(NLMSG_ERROR), Some(code)) => {
                    return Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()));
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}
