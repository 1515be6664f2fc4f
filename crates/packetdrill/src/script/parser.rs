//! Events, their times and system calls.

use tcp::Nanos;

use super::expression::{expression, list};
use super::lexer::{self, Token};
use super::packet::{Direction, packet};
use super::words::Words;
use super::{Action, Call, Event, ParseError, Script, Time};

/// Parses a script.
///
/// # Errors
/// The first line that is not valid.
pub fn parse(text: &str) -> Result<Script, ParseError> {
    let placed = lexer::words(text)?;
    let mut words = Words::new(&placed);
    let mut script = Script::default();
    while let Some(Token::Option(name)) = words.peek() {
        let name = name.clone();
        words.next();
        let value = if words.accept('=') { Some(option_value(&mut words)?) } else { None };
        script.options.push((name, value));
    }
    if let Some(Token::Command(command)) = words.peek() {
        script.init = Some(command.clone());
        words.next();
    }
    while words.peek().is_some() {
        if let Some(Token::Command(command)) = words.peek() {
            script.cleanup = Some(command.clone());
            words.next();
            if words.peek().is_some() {
                return words.error("commands without a time stand first or last only");
            }
            break;
        }
        script.events.push(event(&mut words)?);
    }
    Ok(script)
}

fn option_value(words: &mut Words<'_>) -> Result<String, ParseError> {
    let value = match words.next() {
        Some(Token::Integer(value)) => value.to_string(),
        Some(Token::Float(text) | Token::Word(text) | Token::Text(text)) => text.clone(),
        other => return words.error(&format!("the value of an option cannot be {other:?}")),
    };
    // `--define=NAME=value`
    if words.accept('=') {
        return Ok(format!("{value}={}", option_value(words)?));
    }
    // An address was split at its dots or colons.
    let mut value = value;
    while matches!(words.peek(), Some(Token::Float(_))) && words.is_same_line() {
        if let Some(Token::Float(more)) = words.next() {
            value.push_str(more);
        }
    }
    Ok(value)
}

fn event(words: &mut Words<'_>) -> Result<Event, ParseError> {
    let line = words.line();
    let time = event_time(words)?;
    let action = action(words)?;
    let outbound = matches!(&action, Action::Packet(packet) if packet.direction == Direction::Out);
    match time {
        Time::Any | Time::AbsoluteRange(..) | Time::RelativeRange(..) if !outbound => {
            words.error("only a packet that leaves may have a time that is not exact")
        }
        Time::AbsoluteRange(from, to) | Time::RelativeRange(from, to) if to < from => {
            words.error("the range of time is backwards")
        }
        _ => Ok(Event { line, time, action }),
    }
}

fn event_time(words: &mut Words<'_>) -> Result<Time, ParseError> {
    if words.accept('*') {
        return Ok(Time::Any);
    }
    let relative = words.accept('+');
    let from = time(words)?;
    if !words.accept('~') {
        return Ok(if relative { Time::Relative(from) } else { Time::Absolute(from) });
    }
    if relative {
        words.expect('+')?;
        return Ok(Time::RelativeRange(from, time(words)?));
    }
    Ok(Time::AbsoluteRange(from, time(words)?))
}

/// Seconds, as nanoseconds.
fn time(words: &mut Words<'_>) -> Result<Nanos, ParseError> {
    let seconds = match words.next() {
        Some(Token::Integer(value)) => *value as f64,
        Some(Token::Float(text)) => match text.parse::<f64>() {
            Ok(value) => value,
            Err(_) => return words.error("not a time"),
        },
        other => return words.error(&format!("a time is needed, not {other:?}")),
    };
    if seconds < 0.0 {
        return words.error("a time is negative");
    }
    // packetdrill counts microseconds.
    Ok((seconds * 1e6).round() as Nanos * 1000)
}

fn action(words: &mut Words<'_>) -> Result<Action, ParseError> {
    match words.peek() {
        Some(Token::Mark('<')) => {
            words.next();
            Ok(Action::Packet(packet(words, Direction::In)?))
        }
        Some(Token::Mark('>')) => {
            words.next();
            Ok(Action::Packet(packet(words, Direction::Out)?))
        }
        Some(Token::Command(text)) => {
            words.next();
            Ok(Action::Command(text.clone()))
        }
        Some(Token::Code(text)) => {
            words.next();
            Ok(Action::Code(text.clone()))
        }
        _ => Ok(Action::Call(call(words)?)),
    }
}

fn call(words: &mut Words<'_>) -> Result<Call, ParseError> {
    let end = if words.peek() == Some(&Token::Ellipsis) {
        words.next();
        Some(time(words)?)
    } else {
        None
    };
    let name = words.word()?;
    words.expect('(')?;
    let arguments = list(words, ')')?;
    words.expect('=')?;
    let result = expression(words)?;
    let error = match words.peek() {
        Some(Token::Word(name)) => {
            words.next();
            Some(name.clone())
        }
        _ => None,
    };
    // A comment in parentheses: the text of strerror.
    if words.accept('(') {
        while !words.accept(')') {
            if words.next().is_none() {
                return words.error("a remark has no end");
            }
        }
    }
    Ok(Call { end, name, arguments, result, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Body, Expression};

    fn event_of(text: &str) -> Event {
        parse(text).unwrap().events.remove(0)
    }

    #[test]
    fn times_are_exact_relative_ranges_or_anything() {
        assert_eq!(event_of("0.1 > . 1:1(0) ack 1").time, Time::Absolute(100_000_000));
        assert_eq!(event_of("+.01 > . 1:1(0) ack 1").time, Time::Relative(10_000_000));
        let range = Time::RelativeRange(200_000_000, 220_000_000);
        assert_eq!(event_of("+.2~+.22 > . 1:1(0) ack 1").time, range);
        assert_eq!(
            event_of("1~2 > . 1:1(0)").time,
            Time::AbsoluteRange(1_000_000_000, 2_000_000_000)
        );
        assert_eq!(event_of("* > . 1:1(0)").time, Time::Any);
        assert!(parse("* close(3) = 0").is_err());
        assert!(parse("2~1 > . 1:1(0)").is_err());
    }

    #[test]
    fn a_call_has_arguments_a_result_and_an_errno() {
        let event =
            event_of("0.1...0.2 connect(3, ..., ...) = -1 ECONNREFUSED (Connection refused)");
        let Action::Call(call) = event.action else { panic!("not a call") };
        assert_eq!(call.end, Some(200_000_000));
        assert_eq!(call.name, "connect");
        assert_eq!(call.result, Expression::Integer(-1));
        assert_eq!(call.error.as_deref(), Some("ECONNREFUSED"));
    }

    #[test]
    fn structures_lists_and_flags_are_arguments() {
        let text = "0 sendmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 40}], msg_flags=0}, \
                    MSG_MORE|MSG_DONTWAIT) = 40";
        let Action::Call(call) = event_of(text).action else { panic!("not a call") };
        let iov = call.arguments[1].member("msg_iov").unwrap().items().unwrap();
        let one = Expression::Tuple(vec![Expression::Ellipsis, Expression::Integer(40)]);
        assert_eq!(iov, [one]);
        let flags = i64::from(libc::MSG_MORE | libc::MSG_DONTWAIT);
        assert_eq!(call.arguments[2].integer(), Ok(flags));
    }

    #[test]
    fn a_script_has_options_commands_and_code() {
        let text = "--tolerance_usecs=100\n--mss=1000\n`sysctl -q a=1`\n0 %{ assert 1 }%\n\
                    +0 `true`\n`sysctl -q a=0`";
        let script = parse(text).unwrap();
        assert_eq!(script.options[1], ("mss".to_owned(), Some("1000".to_owned())));
        assert_eq!(script.init.as_deref(), Some("sysctl -q a=1"));
        assert_eq!(script.events.len(), 2);
        assert_eq!(script.cleanup.as_deref(), Some("sysctl -q a=0"));
    }

    #[test]
    fn an_error_has_its_line() {
        assert_eq!(parse("0 close(3) = 0\n+0 < P. 1:2(2) ack 1").unwrap_err().line, 2);
        assert_eq!(parse("0 close(3 = 0").unwrap_err().line, 1);
    }

    #[test]
    fn icmp_quotes_what_it_answers() {
        let text = "0 < icmp unreachable frag_needed mtu 1200 [1:1461(1460)]";
        let Action::Packet(packet) = event_of(text).action else { panic!("not a packet") };
        let Body::Icmp(icmp) = packet.body else { panic!("not ICMP") };
        assert_eq!(
            (icmp.kind.as_str(), icmp.code.as_deref()),
            ("unreachable", Some("frag_needed"))
        );
        assert_eq!((icmp.mtu, icmp.quoted.start, icmp.quoted.len), (Some(1200), 1, 1460));
    }
}
