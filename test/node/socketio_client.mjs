// The official Socket.IO client against happyd's server. Reads {"url"} from
// stdin and prints what it saw as one line of JSON; socketio/node_test.go knows
// the other side and judges.
import { readFileSync } from 'node:fs';
import { io } from 'socket.io-client';

const { url } = JSON.parse(readFileSync(0, 'utf8'));
const seen = {};

const connect = (auth, options = {}) => {
  const socket = io(url, { path: '/v1/updates', transports: ['websocket'], auth, forceNew: true, reconnectionDelay: 50, ...options });
  return new Promise((resolve) => {
    socket.once('connect', () => resolve({ socket }));
    socket.once('connect_error', (error) => resolve({ socket, error: error.message }));
  });
};
const once = (socket, event) => new Promise((resolve) => socket.once(event, (...args) => resolve(args)));

const refused = await connect({ token: 'bad' });
seen.refused = refused.error;
refused.socket.close();

const nsp = io(`${url}/admin`, { path: '/v1/updates', transports: ['websocket'], forceNew: true, reconnection: false });
seen.namespace = (await once(nsp, 'connect_error'))[0].message;
nsp.close();

const { socket } = await connect({ token: 'good', clientType: 'user-scoped' });
seen.id = socket.id;
socket.on('question', (what, ack) => ack({ answer: what }));
seen.auth = await socket.emitWithAck('auth');
seen.echo = await socket.emitWithAck('echo', { text: '\u2028\u0000\u{1F600}', list: [1, null, true] });
seen.ask = await socket.emitWithAck('ask', 'why');

const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => socket.emitWithAck('echo', i)));
seen.acks = answers.every((answer, i) => answer === i);

const big = once(socket, 'pushed');
socket.emit('big', 5 * 1024 * 1024);
seen.big = (await big)[0].length;

// Longer than several pings, which the server sends every 100 ms here.
await new Promise((resolve) => setTimeout(resolve, 500));
seen.connectedAfterPings = socket.connected;

// A transport that closes brings the client back by itself ...
let gone = once(socket, 'disconnect');
const back = once(socket, 'connect');
socket.emit('drop');
seen.drop = (await gone)[0];
await back;
seen.cameBack = await socket.emitWithAck('echo', 'back');

// ... and so does a packet beyond the limit, ...
gone = once(socket, 'disconnect');
const again = once(socket, 'connect');
socket.emit('echo', 'x'.repeat(1_100_000), () => {});
seen.oversize = (await gone)[0];
await again;

// ... but one that is thrown out stays out.
gone = once(socket, 'disconnect');
socket.emit('kick');
seen.kick = (await gone)[0];
seen.active = socket.active;
socket.close();

console.log(JSON.stringify(seen));
process.exit(0);
