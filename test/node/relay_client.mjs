// The official Socket.IO client against happyd's relay, every update checked
// against the wire's own schema. Reads {"url"} from stdin and prints what it
// saw as one line of JSON; relay/node_test.go judges.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { CoreUpdateContainerSchema, SessionMessageSchema } from '@slopus/happy-wire';
import { io } from 'socket.io-client';
import tweetnacl from 'tweetnacl';

const { url } = JSON.parse(readFileSync(0, 'utf8'));
const seen = {};
const b64 = (bytes) => Buffer.from(bytes).toString('base64');

const request = async (method, path, token, body) => {
  const response = await fetch(url + path, {
    method,
    headers: { ...(body && { 'Content-Type': 'application/json' }), ...(token && { Authorization: `Bearer ${token}` }) },
    body: body && JSON.stringify(body),
  });
  return response.json();
};

const keys = tweetnacl.sign.keyPair();
const challenge = randomBytes(32);
const { token } = await request('POST', '/v1/auth', null, {
  publicKey: b64(keys.publicKey), challenge: b64(challenge), signature: b64(tweetnacl.sign.detached(challenge, keys.secretKey)),
});

const connect = (auth) => new Promise((resolve) => {
  const socket = io(url, { path: '/v1/updates', transports: ['websocket'], withCredentials: true, forceNew: true, auth });
  socket.once('connect', () => resolve({ socket }));
  socket.once('connect_error', (error) => {
    socket.close();
    resolve({ error: error.message });
  });
});
seen.refusals = [];
for (const auth of [{}, { token: 'x' }, { token, clientType: 'session-scoped' }, { token, clientType: 'machine-scoped' }]) {
  seen.refusals.push((await connect(auth)).error);
}

const { session } = await request('POST', '/v1/sessions', token, { tag: 't', metadata: 'bWV0YQ==', agentState: null, dataEncryptionKey: null });
const { socket } = await connect({ token, clientType: 'session-scoped', sessionId: session.id, happyClient: 'test/1' });
const updates = [];
socket.on('update', (update) => updates.push(update));

const posted = await request('POST', `/v3/sessions/${session.id}/messages`, token, {
  messages: Array.from({ length: 100 }, (_, i) => ({ content: b64(`message ${i}`), localId: `l${i}` })),
});
seen.posted = posted.messages.map((m) => m.seq).join() === Array.from({ length: 100 }, (_, i) => i + 1).join();
seen.metadata = await socket.emitWithAck('update-metadata', { sid: session.id, metadata: 'bmV3', expectedVersion: 0 });
seen.mismatch = await socket.emitWithAck('update-metadata', { sid: session.id, metadata: 'bmV3ZXI=', expectedVersion: 0 });
seen.state = await socket.emitWithAck('update-state', { sid: session.id, agentState: 'c3RhdGU=', expectedVersion: 0 });
seen.ping = await socket.emitWithAck('ping');
while (updates.length < 102) await new Promise((resolve) => setTimeout(resolve, 10));

seen.schema = updates.map((u) => CoreUpdateContainerSchema.safeParse(u)).filter((r) => !r.success).map((r) => r.error.message);
seen.order = updates.every((u, i) => i === 0 || u.seq > updates[i - 1].seq);
const { messages, hasMore } = await request('GET', `/v3/sessions/${session.id}/messages?after_seq=0&limit=100`, token);
seen.messages = messages.every((m, i) => SessionMessageSchema.safeParse(m).success && m.content.c === b64(`message ${i}`));
seen.hasMore = hasMore;

// Methods answered by one socket are called by another.
const { socket: app } = await connect({ token });
const registered = new Promise((resolve) => socket.once('rpc-registered', resolve));
socket.on('rpc-request', (call, answer) => answer(`answer to ${call.method} ${call.params}`));
socket.emit('rpc-register', { method: `${session.id}:bash` });
seen.registered = (await registered).method === `${session.id}:bash`;
seen.rpc = (await app.emitWithAck('rpc-call', { method: `${session.id}:bash`, params: 'p' })).result === `answer to ${session.id}:bash p`;

socket.close();
app.close();
console.log(JSON.stringify(seen));
process.exit(0);
