"""Services behind nginx, on loopback: HTTP/1.1 (chunked answers, an upload counter, WebSocket echo) and a
plain TCP echo. Standard library only.

usage: upstream.py HTTP_PORT ECHO_PORT READY_FILE
"""

import asyncio
import base64
import hashlib
import struct
import sys

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    fields = {}
    for line in lines[1:]:
        if ":" in line:
            name, value = line.split(":", 1)
            fields[name.strip().lower()] = value.strip()
    return method, path, fields


async def read_body(reader, fields):
    digest, length = hashlib.sha256(), 0
    if fields.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await reader.readexactly(size)
            await reader.readexactly(2)
            if size == 0:
                break
            digest.update(data)
            length += size
    else:
        left = int(fields.get("content-length", "0"))
        while left:
            data = await reader.read(min(left, 1 << 16))
            if not data:
                raise ConnectionError("the body ended early")
            digest.update(data)
            length += len(data)
            left -= len(data)
    return digest.hexdigest(), length


async def send_chunked(writer, count):
    """Chunks of growing size whose bytes tell the chunk's number."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(count):
        data = bytes([number % 251]) * (number + 1)
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        if number % 16 == 0:
            await writer.drain()
            await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def websocket(reader, writer, fields):
    key = fields["sec-websocket-key"].encode()
    accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest())
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )
    while True:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await reader.readexactly(8))
        mask = await reader.readexactly(4) if second & 0x80 else b"\0" * 4
        masked = await reader.readexactly(length)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked))
        if length < 126:
            head = struct.pack("!BB", first, length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", first, 126, length)
        else:
            head = struct.pack("!BBQ", first, 127, length)
        writer.write(head + data)
        await writer.drain()
        if first & 0x0F == 8:
            return


async def serve_http(reader, writer):
    try:
        while True:
            method, path, fields = await read_head(reader)
            if path.startswith("/ws"):
                await websocket(reader, writer, fields)
                return
            if path.startswith("/chunked/"):
                await send_chunked(writer, int(path.rsplit("/", 1)[1]))
                continue
            digest, length = await read_body(reader, fields)
            answer = f"{method} {length} {digest}\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve_echo(reader, writer):
    try:
        data = await reader.read(1 << 16)
        if data.startswith(b"AFTER EOF "):
            # The whole answer comes only after the peer's FIN.
            while more := await reader.read(1 << 16):
                data += more
            length, block = int(data.split()[2]), bytes(range(251)) * 261
            for start in range(0, length, len(block)):
                writer.write(block[: length - start])
                await writer.drain()
            return
        while data:
            writer.write(data)
            await writer.drain()
            data = await reader.read(1 << 16)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main():
    http_port, echo_port, ready = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    await asyncio.start_server(serve_http, "127.0.0.1", http_port)
    await asyncio.start_server(serve_echo, "127.0.0.1", echo_port)
    with open(ready, "w", encoding="ascii") as file:
        file.write("ready\n")
    await asyncio.Event().wait()


asyncio.run(main())
