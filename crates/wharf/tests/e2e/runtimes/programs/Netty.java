/// A server that echoes, by Netty's native transport: four threads with an edge-triggered set of epoll each.

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.*;
import io.netty.channel.epoll.*;
import io.netty.channel.socket.SocketChannel;

class Netty {
    static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object bytes) {
            context.write(bytes);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        /// Reads no more than can be written.
        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            context.channel().config().setAutoRead(context.channel().isWritable());
        }
    }

    public static void main(String[] words) throws Exception {
        new ServerBootstrap()
            .group(new EpollEventLoopGroup(1), new EpollEventLoopGroup(4))
            .channel(EpollServerSocketChannel.class)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel stream) {
                    stream.pipeline().addLast(new Echo());
                }
            })
            .bind(Integer.parseInt(words[0])).sync().channel().closeFuture().sync();
    }
}
