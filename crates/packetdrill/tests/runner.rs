//! A script with a wrong expectation fails, with a message that names the difference.

use packetdrill::runner::{Failure, run};

/// Opens a connection whose descriptor is 4.
const OPEN: &str = "\
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1000,sackOK,TS val 700 ecr 0,nop,wscale 7>
+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 100 ecr 700,nop,wscale 7>
+.1 < . 1:1(0) ack 1 win 512 <nop,nop,TS val 800 ecr 100>
+0 accept(3, ..., ...) = 4
";

fn with(rest: &str) -> Result<(), Failure> {
    run(&format!("{OPEN}{rest}"))
}

/// The failure of a script, whose line 8 is the first after the opening.
fn failure(rest: &str) -> String {
    with(rest).unwrap_err().to_string()
}

#[test]
fn a_right_expectation_passes() {
    let options = "<nop,nop,TS val 200 ecr 800>";
    with(&format!("+0 write(4, ..., 500) = 500\n+0 > P. 1:501(500) ack 1 {options}")).unwrap();
}

#[test]
fn each_field_of_a_packet_is_compared() {
    let cases = [
        ("+0 > . 1:501(500) ack 1 <...>", "flags: expected ., actual P."),
        ("+0 > P. 2:502(500) ack 1 <...>", "sequence number: expected 2, actual 1"),
        ("+0 > P. 1:401(400) ack 1 <...>", "length: expected 400, actual 500"),
        ("+0 > P. 1:501(500) ack 2 <...>", "acknowledgment: expected 2, actual 1"),
        ("+0 > P. 1:501(500) ack 1 win 9 <...>", "window: expected 9, actual"),
        ("+0 > P. 1:501(500) ack 1 urg 9 <...>", "urgent pointer: expected 9, actual 0"),
        ("+0 > [ect0] P. 1:501(500) ack 1 <...>", "ECN: expected 2, actual 0"),
        ("+0 > P. 1:501(500) ack 1", "options: expected <>, actual <nop,nop,TS val"),
        ("+0 > P. 1:501(500) ack 1 <nop,nop,TS val 200 ecr 9>", "options: expected <nop,nop,TS"),
        ("+.1 > P. 1:501(500) ack 1 <...>", "time: expected 0.200000 to 0.200000"),
    ];
    for (expected, complaint) in cases {
        let why = failure(&format!("+0 write(4, ..., 500) = 500\n{expected}"));
        assert!(why.starts_with("9: another packet was sent"), "{expected}: {why}");
        assert!(why.contains(complaint), "{expected}: {why}");
    }
}

#[test]
fn timestamps_are_compared_if_the_script_has_a_tick() {
    let script = format!(
        "--tcp_ts_tick_usecs=1000\n{OPEN}+0 write(4, ..., 500) = 500\n\
         +0 > P. 1:501(500) ack 1 <nop,nop,TS val 900 ecr 800>"
    );
    let why = run(&script).unwrap_err().to_string();
    assert!(why.contains("options: expected <nop,nop,TS val 900 ecr 800>"), "{why}");
    run(&script.replace("val 900 ecr", "val 200 ecr")).unwrap();
}

#[test]
fn a_packet_that_was_not_expected_is_a_failure() {
    let why = failure("+0 write(4, ..., 500) = 500");
    assert!(why.contains("not expected: 0.100000 > P. 1:501(500)"), "{why}");
}

#[test]
fn a_packet_that_is_not_sent_is_a_failure() {
    let why = failure("+0 > P. 1:501(500) ack 1 <...>");
    assert!(why.contains("no packet was sent"), "{why}");
    assert!(why.contains("expected: 0.100000 > P. 1:501(500) ack 1"), "{why}");
}

#[test]
fn results_and_errnos_of_calls_are_compared() {
    let why = failure("+0 write(4, ..., 500) = 400");
    assert_eq!(why, "8: write(): it gives 500, expected 400 ");
    let why = failure("+0 read(9, ..., 500) = 400");
    assert_eq!(why, "8: read(): descriptor 9 is not open");
    let nonblocking = "+0 fcntl(4, F_SETFL, O_NONBLOCK) = 0\n";
    let why = failure(&format!("{nonblocking}+0 read(4, ..., 5) = -1 EPIPE (why)"));
    assert_eq!(why, "9: read(): it fails with EAGAIN, expected EPIPE");
}

#[test]
fn a_call_that_blocks_returns_when_the_script_says() {
    let read = "+0...0.5 read(4, ..., 500) = 500\n";
    let data = "< P. 1:501(500) ack 1 win 512 <nop,nop,TS val 900 ecr 100>\n";
    let ack = "+0 > . 1:1(0) ack 501 <...>";
    with(&format!("{read}+.5 {data}{ack}")).unwrap();
    let why = failure(&format!("{read}+.2 {data}{ack}"));
    assert!(why.contains("read() returns at 0.300000, expected 0.600000"), "{why}");
    assert!(failure(read).contains("read() of line 8 has not returned"));
}

#[test]
fn assertions_over_tcp_info_are_checked() {
    with("+0 %{\nassert tcpi_snd_cwnd == 10 # a remark\nx = tcpi_snd_mss; assert x < 1460\n}%")
        .unwrap();
    let why = failure("+0 %{ assert tcpi_snd_cwnd == 11, tcpi_snd_cwnd }%");
    assert!(why.contains("it does not hold, tcpi_snd_cwnd is 10"), "{why}");
    assert!(failure("+0 %{ assert tcpi_no_such_thing == 1 }%").contains("has no value"));
}

#[test]
fn commands_that_cannot_be_followed_are_refused_by_name() {
    let why = run(&format!("`sysctl -q net.ipv4.tcp_sack=1`\n{OPEN}+0 `rm -rf x`")).unwrap_err();
    assert!(why.message.contains("command `rm -rf x`: not supported"), "{why}");
    let why = run("`sysctl -q net.ipv4.tcp_no_such_thing=1`\n0 close(3) = 0").unwrap_err();
    assert!(why.message.contains("the engine has no tcp_no_such_thing"), "{why}");
}
