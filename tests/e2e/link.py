"""A network between one program and a server on loopback: what goes through it may take its time, or not arrive as long as it is cut.
(As with TCP over a real one: what was sent meanwhile comes once it is mended, if both sides still wait.)"""
import asyncio
import contextlib
import threading
import urllib.parse

PIECE_BYTES = 1 << 16


class Link:
    """`with Link(url) as link:` … link.url leads to `url`. Each piece is held for `delay_s` in either direction."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.delay_s, self.is_cut, self.connections = 0.0, False, 0
        self.listening = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self.thread.start()
        assert self.listening.wait(20)
        return self

    def __exit__(self, *exc):
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(20)

    async def _run(self):
        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        tasks = set()

        async def connected(reader, writer):
            tasks.add(asyncio.current_task())
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.listening.set()
        await self.ended.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader, writer):
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        try:
            await asyncio.gather(self._one_way(reader, far_writer), self._one_way(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    async def _one_way(self, reader, writer):
        while True:
            piece = await reader.read(PIECE_BYTES)
            await asyncio.sleep(self.delay_s)
            while self.is_cut:
                await asyncio.sleep(0.02)
            if not piece:
                return writer.close()
            writer.write(piece)
            await writer.drain()
