// The official Socket.IO server, set up as happy-server sets it up, for the
// tests of happyd's client. Reads {"port", "pingInterval", "pingTimeout"} from
// stdin, prints its port, and serves until stdin ends.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { Server } from 'socket.io';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const options = JSON.parse((await lines.next()).value);

const http = createServer();
const io = new Server(http, {
  path: '/v1/updates',
  transports: ['websocket', 'polling'],
  pingInterval: options.pingInterval ?? 15000,
  pingTimeout: options.pingTimeout ?? 45000,
  connectTimeout: 20000,
});

io.use((socket, next) => {
  const { token } = socket.handshake.auth;
  if (token === 'good') return next();
  const error = new Error(token ? 'Invalid authentication token' : 'Missing authentication token');
  if (token === 'with data') error.data = { code: 7 };
  next(error);
});

const goodbyes = [];
io.on('connection', (socket) => {
  socket.on('disconnect', (reason) => goodbyes.push(reason));
  socket.on('goodbyes', (ack) => ack(goodbyes));
  socket.on('auth', (ack) => ack(socket.handshake.auth));
  socket.on('echo', (...args) => args.pop()(...args));
  socket.on('push', (count) => {
    for (let i = 0; i < count; i++) socket.emit('pushed', i);
  });
  socket.on('ask', async (what, ack) => ack(await socket.timeout(5000).emitWithAck('question', what)));
  socket.on('big', (bytes, ack) => {
    socket.emit('pushed', 'x'.repeat(bytes));
    ack();
  });
  socket.on('binary', (ack) => {
    socket.emit('attachment', Buffer.from([1, 2, 3]));
    ack();
  });
  socket.on('kick', () => socket.disconnect(true));
});

http.listen(options.port ?? 0, '127.0.0.1', () => console.log(http.address().port));
for (;;) if ((await lines.next()).done) break;
process.exit(0);
