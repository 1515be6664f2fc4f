//! Packets in a script.

use wire::Flags;

use super::ParseError;
use super::lexer::Token;
use super::words::Words;

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// `<`: it arrives at the stack.
    In,
    /// `>`: the stack sends it.
    Out,
}

/// The ECN field of the IP header (RFC 3168 section 5) that a script asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// This value.
    Is(u8),
    /// ECT(0) or ECT(1).
    Ect01,
    /// This whole octet, DSCP included.
    Tos(u8),
}

/// A packet.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    /// Whether it arrives or is sent.
    pub direction: Direction,
    /// `[ect0]` and the like.
    pub ecn: Option<Ecn>,
    /// Time to live, if it is given.
    pub ttl: Option<u8>,
    /// Its contents.
    pub body: Body,
}

/// Contents of a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(TcpSpec),
    /// An ICMP message.
    Icmp(IcmpSpec),
}

/// Bytes of the sequence space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sequence {
    /// The first.
    pub start: u32,
    /// Bytes of payload.
    pub len: u16,
}

/// A TCP segment.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpSpec {
    /// Source and destination port, if they are not those of the connection.
    pub ports: Option<(u16, u16)>,
    /// Control bits.
    pub flags: Flags,
    /// Sequence number and payload.
    pub sequence: Sequence,
    /// Acknowledgment number; 0 if it is not given.
    pub ack: u32,
    /// Window field, if it is given.
    pub window: Option<u16>,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options; `None` if they do not matter (`<...>`).
    pub options: Option<Vec<TcpOption>>,
}

/// A TCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// End of the options (kind 0).
    End,
    /// Padding (kind 1).
    Nop,
    /// Maximum segment size (kind 2).
    Mss(u16),
    /// Window scale (kind 3).
    WindowScale(u8),
    /// SACK permitted (kind 4).
    SackPermitted,
    /// SACK blocks (kind 5).
    Sack(Vec<(u32, u32)>),
    /// Timestamps (kind 8).
    Timestamps {
        /// TSval.
        value: u32,
        /// TSecr.
        echo: u32,
    },
    /// Any other.
    Other {
        /// Kind.
        kind: u8,
        /// What follows the length octet.
        data: Vec<u8>,
    },
}

impl TcpOption {
    /// The option as it stands in a header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            TcpOption::End => out.push(0),
            TcpOption::Nop => out.push(1),
            TcpOption::Mss(mss) => {
                out.extend([2, 4]);
                out.extend(mss.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => out.extend([3, 3, *shift]),
            TcpOption::SackPermitted => out.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                out.extend([5, 2 + 8 * blocks.len() as u8]);
                for (start, end) in blocks {
                    out.extend(start.to_be_bytes());
                    out.extend(end.to_be_bytes());
                }
            }
            TcpOption::Timestamps { value, echo } => {
                out.extend([8, 10]);
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            TcpOption::Other { kind, data } => {
                out.extend([*kind, 2 + data.len() as u8]);
                out.extend(data);
            }
        }
    }
}

/// Options as bytes of a header, padded with zeros to a multiple of four.
pub fn encode_options(options: &[TcpOption]) -> Vec<u8> {
    let mut out = Vec::new();
    options.iter().for_each(|option| option.encode(&mut out));
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

impl std::fmt::Display for TcpOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TcpOption::End => f.write_str("eol"),
            TcpOption::Nop => f.write_str("nop"),
            TcpOption::Mss(mss) => write!(f, "mss {mss}"),
            TcpOption::WindowScale(shift) => write!(f, "wscale {shift}"),
            TcpOption::SackPermitted => f.write_str("sackOK"),
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(start, end)| write!(f, " {start}:{end}"))
            }
            TcpOption::Timestamps { value, echo } => write!(f, "TS val {value} ecr {echo}"),
            TcpOption::Other { kind, data } => write!(f, "kind {kind} {data:02x?}"),
        }
    }
}

/// An ICMP message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpSpec {
    /// Type, in packetdrill's words.
    pub kind: String,
    /// Code, in packetdrill's words.
    pub code: Option<String>,
    /// MTU of the next hop.
    pub mtu: Option<u16>,
    /// Sequence space of the segment that it quotes.
    pub quoted: Sequence,
}

/// Parses what follows `<` or `>`.
pub(super) fn packet(words: &mut Words<'_>, direction: Direction) -> Result<Packet, ParseError> {
    if matches!(words.peek(), Some(Token::Word(word)) if matches!(word.as_str(), "ipv4" | "ipv6" | "gre" | "mpls" | "udp"))
    {
        return words.error("only plain TCP and ICMP packets are supported");
    }
    let (ecn, ttl) = ip_info(words)?;
    let body = if words.accept_word("icmp") {
        Body::Icmp(icmp(words)?)
    } else {
        Body::Tcp(segment(words, direction)?)
    };
    Ok(Packet { direction, ecn, ttl, body })
}

/// `[ect0]`, `(ce)`, `[tos 0x10]`, `[ttl 5]`.
fn ip_info(words: &mut Words<'_>) -> Result<(Option<Ecn>, Option<u8>), ParseError> {
    let end = if words.accept('[') {
        ']'
    } else if words.accept('(') {
        ')'
    } else {
        return Ok((None, None));
    };
    let (mut ecn, mut ttl) = (None, None);
    loop {
        match words.word()?.as_str() {
            "noecn" => ecn = Some(Ecn::Is(0)),
            "ect1" => ecn = Some(Ecn::Is(1)),
            "ect0" => ecn = Some(Ecn::Is(2)),
            "ce" => ecn = Some(Ecn::Is(3)),
            "ect01" => ecn = Some(Ecn::Ect01),
            "tos" => ecn = Some(Ecn::Tos(words.fitting("tos")?)),
            "ttl" => ttl = Some(words.fitting("ttl")?),
            other => return words.error(&format!("`{other}` is no field of an IP header")),
        }
        if words.accept(end) {
            return Ok((ecn, ttl));
        }
        words.expect(',')?;
    }
}

fn icmp(words: &mut Words<'_>) -> Result<IcmpSpec, ParseError> {
    let kind = words.word()?;
    let mut spec = IcmpSpec { kind, code: None, mtu: None, quoted: Sequence::default() };
    if !matches!(words.peek(), Some(Token::Word(word)) if word == "mtu")
        && matches!(words.peek(), Some(Token::Word(_)))
    {
        spec.code = Some(words.word()?);
    }
    if words.accept_word("mtu") {
        spec.mtu = Some(words.fitting("mtu")?);
    }
    if words.accept('[') {
        spec.quoted = sequence(words)?;
        words.expect(']')?;
    }
    Ok(spec)
}

fn segment(words: &mut Words<'_>, direction: Direction) -> Result<TcpSpec, ParseError> {
    let ports = if matches!(words.peek(), Some(Token::Integer(_))) {
        let source = words.fitting("source port")?;
        words.expect('>')?;
        Some((source, words.fitting("destination port")?))
    } else {
        None
    };
    let mut spec = TcpSpec {
        ports,
        flags: flags(words)?,
        sequence: sequence(words)?,
        ack: 0,
        window: None,
        urgent: 0,
        options: Some(Vec::new()),
    };
    if words.accept_word("ack") {
        spec.ack = words.fitting("the acknowledgment number")?;
    }
    if words.accept_word("win") {
        spec.window = Some(words.fitting("the window")?);
    }
    if words.accept_word("urg") {
        spec.urgent = words.fitting("the urgent pointer")?;
    }
    if words.accept('<') {
        spec.options = options(words)?;
    }
    if direction == Direction::In && spec.options.is_none() {
        return words.error("a packet that arrives needs its options");
    }
    Ok(spec)
}

fn flags(words: &mut Words<'_>) -> Result<Flags, ParseError> {
    if words.accept('-') {
        return Ok(Flags(0));
    }
    let mut flags = Flags(0);
    if let Some(Token::Word(letters)) = words.peek() {
        words.next();
        for letter in letters.chars() {
            flags = flags.with(match letter {
                'F' => Flags::FIN,
                'S' => Flags::SYN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                'U' => Flags::URG,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                other => return words.error(&format!("there is no TCP flag `{other}`")),
            });
        }
        return Ok(if words.accept('.') { flags.with(Flags::ACK) } else { flags });
    }
    match words.next() {
        Some(Token::Mark('.')) => Ok(Flags::ACK),
        Some(Token::Float(_)) => words.error("accurate ECN is not supported"),
        other => words.error(&format!("TCP flags are needed, not {other:?}")),
    }
}

/// `1:1001(1000)`
fn sequence(words: &mut Words<'_>) -> Result<Sequence, ParseError> {
    let start: u32 = words.fitting("the sequence number")?;
    words.expect(':')?;
    let end: u32 = words.fitting("the end")?;
    words.expect('(')?;
    let len: u16 = words.fitting("the length")?;
    words.expect(')')?;
    if end != start.wrapping_add(u32::from(len)) {
        return words.error("sequence numbers and length do not agree");
    }
    Ok(Sequence { start, len })
}

/// After `<`, up to and with `>`.
fn options(words: &mut Words<'_>) -> Result<Option<Vec<TcpOption>>, ParseError> {
    if words.peek() == Some(&Token::Ellipsis) {
        words.next();
        words.expect('>')?;
        return Ok(None);
    }
    let mut out = Vec::new();
    loop {
        out.push(option(words)?);
        if words.accept('>') {
            break;
        }
        words.expect(',')?;
    }
    if encode_options(&out).len() > tcp::options::OPTIONS_MAX {
        return words.error("more options than a header holds");
    }
    Ok(Some(out))
}

fn option(words: &mut Words<'_>) -> Result<TcpOption, ParseError> {
    Ok(match words.word()?.as_str() {
        "eol" => TcpOption::End,
        "nop" => TcpOption::Nop,
        "mss" => TcpOption::Mss(words.fitting("the MSS")?),
        "wscale" => TcpOption::WindowScale(words.fitting("the window scale")?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => {
            let mut blocks = Vec::new();
            while matches!(words.peek(), Some(Token::Integer(_))) {
                let start = words.fitting("a SACK block")?;
                words.expect(':')?;
                blocks.push((start, words.fitting("a SACK block")?));
            }
            TcpOption::Sack(blocks)
        }
        "TS" => {
            if !words.accept_word("val") {
                return words.error("`TS` needs `val`");
            }
            let value = words.fitting("TSval")?;
            if !words.accept_word("ecr") {
                return words.error("`TS` needs `ecr`");
            }
            TcpOption::Timestamps { value, echo: words.fitting("TSecr")? }
        }
        "FO" => TcpOption::Other { kind: 34, data: hexadecimal(words)? },
        "FOEXP" => {
            let mut data = vec![0xf9, 0x89];
            data.extend(hexadecimal(words)?);
            TcpOption::Other { kind: 254, data }
        }
        "md5" => TcpOption::Other { kind: 19, data: hexadecimal(words)? },
        other => return words.error(&format!("TCP option `{other}` is not known")),
    })
}

/// Digits without a prefix; none at all is no bytes.
fn hexadecimal(words: &mut Words<'_>) -> Result<Vec<u8>, ParseError> {
    let digits = match words.peek() {
        Some(Token::Word(word)) => word.clone(),
        // A number has lost its leading zeros; cookies are not interpreted.
        Some(Token::Integer(value)) => {
            let digits = value.to_string();
            if digits.len() % 2 == 1 { format!("0{digits}") } else { digits }
        }
        _ => return Ok(Vec::new()),
    };
    words.next();
    let pair = |at: usize| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.map_or_else(|| words.error("not a hexadecimal number of whole bytes"), Ok)
}
