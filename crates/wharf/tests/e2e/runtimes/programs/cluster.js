// A server that echoes, by Node's cluster: four workers, to which the primary passes what it accepts (`passes`), or that
// accept themselves (`shares`).
const cluster = require('cluster'), net = require('net');
cluster.schedulingPolicy = process.argv[3] == 'passes' ? cluster.SCHED_RR : cluster.SCHED_NONE;
if (cluster.isPrimary) {
    for (let count = 0; count < 4; count++) cluster.fork();
    cluster.on('exit', (worker, status, signal) => {
        console.error(`a worker has ended: ${status} ${signal}`);
        process.exit(1);
    });
} else {
    net.createServer({ allowHalfOpen: true }, (stream) => stream.pipe(stream)).listen(+process.argv[2], '0.0.0.0');
}
