//! What ends in the middle: a stream that one side loses before the other, a queue pair that is destroyed, and the
//! patience of one whose messages wait for receives.

use rdma::verbs::Error;

use super::run::Run;
use super::side::Phase;

impl Run {
    /// The stream ends for one side. What the peer has sent and this side has not seen is lost; of what this side has
    /// sent, a part is still to arrive, which is cut anywhere. The peer goes on until it sees the end, too.
    pub(crate) fn lose(&mut self, side: usize, connection: usize) -> Result<(), String> {
        self.say(|| format!("{side}.{connection} loses the stream"));
        let host = &mut self.hosts[side];
        host.rnic.stream_ended(host.model.names.qps[connection]);
        host.model.stream_ended(connection);
        self.cut(side, connection);
        self.compare(side, connection)
    }

    fn cut(&mut self, side: usize, connection: usize) {
        let rest = self.waiting(1 - side, connection) as u64 + 1;
        let kept = self.rng.below(rest) as usize;
        self.pipes[connection][side].cut(kept);
        self.pipes[connection][1 - side].lead_nowhere();
    }

    /// The peer sees the end of a stream that this side has lost.
    pub(crate) fn hears(&mut self, connection: usize) -> Result<(), String> {
        for side in 0..2 {
            let has = |side: usize| self.hosts[side].model.qps[connection].connected;
            if has(side) && !has(1 - side) {
                self.lose(side, connection)?;
            }
        }
        Ok(())
    }

    /// A queue pair is destroyed while data are under way: nothing completes any more, what has completed can be
    /// taken, and the name is nobody's.
    pub(crate) fn destroy(&mut self, side: usize, connection: usize) -> Result<(), String> {
        self.say(|| format!("{side}.{connection} is destroyed"));
        let host = &mut self.hosts[side];
        let is = host.rnic.destroy_qp(host.model.names.qps[connection]);
        let was = &host.model.qps[connection];
        let expected = if was.phase == Phase::Gone { Err(Error::Invalid) } else { Ok(()) };
        if is != expected {
            return Err(format!("destroy: {is:?}, not {expected:?}"));
        }
        host.model.qps[connection] = was.gone();
        host.model.forget(connection);
        self.cut(side, connection);
        self.compare(side, connection)
    }

    /// A destroyed queue pair is made anew.
    pub(crate) fn make_again(&mut self, side: usize, connection: usize) {
        let host = &mut self.hosts[side];
        if host.model.qps[connection].phase == Phase::Gone {
            let name = host.rnic.create_qp(host.configs[connection]).unwrap();
            host.model.names.qps[connection] = name;
        }
    }

    /// Whether messages wait for receives: the application may give up, or begin to.
    pub(crate) fn let_wait(&mut self, side: usize, connection: usize, waits: bool) {
        self.say(|| format!("{side}.{connection} waits: {waits}"));
        let host = &mut self.hosts[side];
        host.rnic.let_wait(host.model.names.qps[connection], waits);
        host.model.qps[connection].waits = waits;
    }

    /// What waits at the end of a run gets its receives, or is given up.
    pub(crate) fn serve(&mut self, side: usize, connection: usize) -> Result<(), String> {
        if self.hosts[side].model.qps[connection].parked.is_empty() {
            return Ok(());
        }
        if self.rng.once_in(20) {
            self.let_wait(side, connection, false);
            return Ok(());
        }
        super::program::receive(self, side, connection)
    }
}
