//! How long the peer of a stream has answered nothing while there is something to send to it. TCP is asked, a few times in the
//! time that a peer has; where nothing is to be sent, its keepalive finds out.

use std::time::Duration;

use sys::tcp::Answers;
use wire::Nanos;

/// How often TCP is asked in that time.
const LOOKS: Nanos = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Silence {
    /// How long a peer may answer nothing.
    timeout: Nanos,
    /// While there may be something to send.
    watch: Option<Watch>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Since when nothing is known to have been answered.
    since: Nanos,
    /// When TCP is asked.
    look: Nanos,
}

impl Silence {
    pub(crate) fn new(timeout: Duration) -> Self {
        let timeout = Nanos::try_from(timeout.as_nanos()).unwrap_or(Nanos::MAX);
        Silence { timeout, watch: None }
    }

    fn interval(&self) -> Nanos {
        self.timeout / LOOKS
    }

    /// Something goes to the peer.
    pub(crate) fn sends(&mut self, now: Nanos) {
        if self.watch.is_none() {
            self.watch = Some(Watch { since: now, look: now.saturating_add(self.interval()) });
        }
    }

    /// When TCP is to be asked.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.watch.map(|watch| watch.look)
    }

    /// TCP says this, or that the connection is none any more, which is found out elsewhere. Returns whether the peer has been
    /// silent for long enough.
    pub(crate) fn hears(&mut self, now: Nanos, answers: Option<Answers>) -> bool {
        let Some(Watch { since, look }) = self.watch.take() else { return false };
        // Between two looks that are far apart it may have answered all, and may have been asked anew just now.
        let is_late = now > look.saturating_add(self.interval());
        let since = match answers {
            None | Some(Answers::All) => return false,
            Some(Answers::Not(time)) if !is_late => {
                let time = Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
                since.max(now.saturating_sub(time))
            }
            Some(_) => now,
        };
        let end = since.saturating_add(self.timeout);
        let look = end.min(now.saturating_add(self.interval()));
        self.watch = Some(Watch { since, look });
        end <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const TIMEOUT: Nanos = 8 * SECOND;

    /// Looks when it is to, at a peer that was heard last so long ago as `heard` says; when it is given up.
    fn given_up(mut heard: impl FnMut(Nanos) -> Answers) -> Option<Nanos> {
        let mut silence = Silence::new(Duration::from_nanos(TIMEOUT));
        assert!(silence.deadline().is_none());
        silence.sends(SECOND);
        let mut looks = 0;
        while let Some(now) = silence.deadline() {
            // What goes out meanwhile is no answer.
            silence.sends(now);
            looks += 1;
            if silence.hears(now, Some(heard(now))) {
                let most = LOOKS * (1 + now / TIMEOUT);
                assert!(looks <= most, "{looks}");
                return Some(now);
            }
            if looks > 1_000 {
                return None;
            }
        }
        panic!("it is not watched any more");
    }

    fn not(time: Nanos) -> Answers {
        Answers::Not(Duration::from_nanos(time))
    }

    #[test]
    fn a_peer_that_answers_nothing_is_given_up_in_time() {
        // What was heard before something was sent is no silence.
        assert_eq!(given_up(|now| not(now + 3600 * SECOND)), Some(SECOND + TIMEOUT));
        // It answers for a while.
        let end = 100 * SECOND;
        let at = given_up(|now| not(now.saturating_sub(end).max(SECOND / 10))).unwrap();
        assert!((end + TIMEOUT..=end + TIMEOUT + TIMEOUT / LOOKS).contains(&at), "{at}");
    }

    #[test]
    fn a_peer_that_answers_now_and_then_lives() {
        assert_eq!(given_up(|_| Answers::Last), None);
        assert_eq!(given_up(|now| not(now % TIMEOUT)), None);
        // It is asked ever less often: between two answers nothing is open.
        let asked = |now: Nanos| {
            if now % (60 * SECOND) < SECOND { not(60 * SECOND) } else { Answers::Last }
        };
        assert_eq!(given_up(asked), None);
    }

    #[test]
    fn what_nobody_has_looked_at_is_no_silence() {
        let mut silence = Silence::new(Duration::from_nanos(TIMEOUT));
        silence.sends(SECOND);
        let late = 100 * SECOND;
        assert!(!silence.hears(late, Some(not(90 * SECOND))));
        assert_eq!(silence.deadline(), Some(late + TIMEOUT / LOOKS));
        // All is answered, or there is no connection: it is not looked at before something is sent.
        for answers in [Some(Answers::All), None] {
            silence.sends(late);
            assert!(!silence.hears(late, answers) && silence.deadline().is_none());
            assert!(!silence.hears(late, Some(not(late))));
        }
    }
}
