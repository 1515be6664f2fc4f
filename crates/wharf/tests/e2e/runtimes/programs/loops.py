"""A server that echoes: one thread accepts, and four have an event loop each, of asyncio or of uvloop."""
import asyncio, os, socket, sys, threading

if sys.argv[2] == 'uvloop':
    import uvloop as loops
else:
    import asyncio as loops


async def serve(stream):
    reader, writer = await asyncio.open_connection(sock=stream)
    while got := await reader.read(65536):
        writer.write(got)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


def run(loop):
    try:
        loop.run_forever()
    finally:
        os._exit(1)


def failed(loop, context):
    sys.stderr.write(f'Exception: {context}\n')
    os._exit(1)


all = [loops.new_event_loop() for _ in range(4)]
for loop in all:
    loop.set_exception_handler(failed)
    threading.Thread(target=run, args=(loop,), daemon=True).start()
# The loop itself keeps no task.
tasks = []
listener = socket.create_server(('', int(sys.argv[1])), backlog=128)
for number in range(1 << 62):
    stream, _ = listener.accept()
    stream.setblocking(False)
    tasks.append(asyncio.run_coroutine_threadsafe(serve(stream), all[number % len(all)]))
