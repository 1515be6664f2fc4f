// A server that echoes, by Asio: one io_context that four threads run.
#include <asio.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

using asio::ip::tcp;

class Session : public std::enable_shared_from_this<Session> {
  public:
    explicit Session(tcp::socket stream) : stream(std::move(stream)) {}

    void read() {
        auto self = shared_from_this();
        stream.async_read_some(asio::buffer(bytes), [self](std::error_code error, std::size_t got) {
            if (!error) self->write(got);
        });
    }

  private:
    void write(std::size_t count) {
        auto self = shared_from_this();
        asio::async_write(stream, asio::buffer(bytes, count), [self](std::error_code error, std::size_t) {
            if (!error) self->read();
        });
    }

    tcp::socket stream;
    std::array<char, 65536> bytes;
};

static void accept(tcp::acceptor &listener) {
    listener.async_accept([&listener](std::error_code error, tcp::socket stream) {
        if (!error) std::make_shared<Session>(std::move(stream))->read();
        accept(listener);
    });
}

int main(int, char **words) {
    asio::io_context context;
    tcp::acceptor listener(context, tcp::endpoint(tcp::v6(), std::atoi(words[1])));
    accept(listener);
    std::vector<std::thread> threads;
    for (int count = 0; count < 4; count++) threads.emplace_back([&context] { context.run(); });
    for (auto &thread : threads) thread.join();
}
