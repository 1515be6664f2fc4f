/// A server that echoes, by NIO: one thread accepts, and four have a selector each.

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

class Nio {
    /// A thread with a selector, and the connections that it is to have.
    static final class Loop extends Thread {
        final Selector selector;
        final Queue<SocketChannel> accepted = new ConcurrentLinkedQueue<>();

        Loop() throws Exception {
            selector = Selector.open();
            start();
        }

        void add(SocketChannel stream) {
            accepted.add(stream);
            selector.wakeup();
        }

        @Override
        public void run() {
            try {
                while (true) {
                    selector.select();
                    for (SocketChannel stream; (stream = accepted.poll()) != null; ) {
                        stream.configureBlocking(false);
                        ByteBuffer bytes = ByteBuffer.allocateDirect(65536);
                        stream.register(selector, SelectionKey.OP_READ, bytes);
                    }
                    for (SelectionKey key : selector.selectedKeys()) echo(key);
                    selector.selectedKeys().clear();
                }
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        }

        static void echo(SelectionKey key) throws Exception {
            SocketChannel stream = (SocketChannel) key.channel();
            ByteBuffer bytes = (ByteBuffer) key.attachment();
            if (key.isReadable()) {
                if (stream.read(bytes) < 0) {
                    stream.close();
                    return;
                }
                bytes.flip();
            }
            stream.write(bytes);
            if (bytes.hasRemaining()) {
                key.interestOps(SelectionKey.OP_WRITE);
            } else {
                bytes.clear();
                key.interestOps(SelectionKey.OP_READ);
            }
        }
    }

    public static void main(String[] words) throws Exception {
        Loop[] loops = new Loop[4];
        for (int at = 0; at < loops.length; at++) loops[at] = new Loop();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(Integer.parseInt(words[0])));
        for (int at = 0; true; at++) loops[at % loops.length].add(listener.accept());
    }
}
