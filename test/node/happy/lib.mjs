// The published Happy client library against happyd's relay. Reads {"url",
// "home", "variant"} from stdin and prints what it saw as one line of JSON;
// relay/node_test.go judges.
import { randomBytes, createCipheriv } from 'node:crypto';
import { readFileSync } from 'node:fs';
import tweetnacl from 'tweetnacl';
import { io } from 'socket.io-client';

const { url, home, variant } = JSON.parse(readFileSync(0, 'utf8'));
process.env.HAPPY_SERVER_URL = url;
process.env.HAPPY_HOME_DIR = home;
const { ApiClient } = await import('happy/lib');

const b64 = (bytes) => Buffer.from(bytes).toString('base64');
const until = async (what, condition) => {
  for (let i = 0; i < 500; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`timed out waiting until ${what}`);
};
const seen = {};

// An account, signed in the way the app does it.
const secret = randomBytes(32);
const keys = tweetnacl.sign.keyPair.fromSeed(secret);
const challenge = randomBytes(32);
const answer = await fetch(`${url}/v1/auth`, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({
    publicKey: b64(keys.publicKey), challenge: b64(challenge), signature: b64(tweetnacl.sign.detached(challenge, keys.secretKey)),
  }),
});
const { token } = await answer.json();
const get = async (path) => (await fetch(url + path, { headers: { Authorization: `Bearer ${token}` } })).json();

const encryption = variant === 'legacy'
  ? { type: 'legacy', secret: new Uint8Array(secret) }
  : { type: 'dataKey', publicKey: tweetnacl.box.keyPair().publicKey, machineKey: new Uint8Array(randomBytes(32)) };
const api = await ApiClient.create({ token, encryption });
const metadata = { path: '/p', host: 'h', homeDir: '/', happyHomeDir: home, happyLibDir: '/l', happyToolsDir: '/t' };

// A session, and a second client that reads along.
const session = await api.getOrCreateSession({ tag: 'tag', metadata, state: {} });
seen.created = { path: session.metadata.path, versions: [session.metadataVersion, session.agentStateVersion] };
const client = api.sessionSyncClient(session);
const reader = api.sessionSyncClient({ ...session });
await until('both are connected', () => client.socket.connected && reader.socket.connected);

const got = [];
reader.on('message', (message) => got.push(message?.content?.id));
const ids = Array.from({ length: 120 }, (_, i) => `id${String(i).padStart(3, '0')}`);
for (const id of ids) {
  client.sendSessionProtocolMessage({ id, time: Date.now(), role: 'user', ev: { t: 'text', text: `text of ${id}` } });
}
await client.flush();
await until('the second client has read everything', () => new Set(got).size >= ids.length);
seen.read = ids.every((id) => got.includes(id));
seen.onServer = (await get(`/v3/sessions/${session.id}/messages?after_seq=0&limit=500`)).messages.map((m) => m.seq).join() === ids.map((_, i) => i + 1).join();

// A message from the app, by the app's own means.
const seal = (value) => {
  const plain = Buffer.from(JSON.stringify(value));
  if (variant === 'legacy') {
    const nonce = randomBytes(24);
    return b64(Buffer.concat([nonce, tweetnacl.secretbox(plain, nonce, session.encryptionKey)]));
  }
  const nonce = randomBytes(12);
  const cipher = createCipheriv('aes-256-gcm', session.encryptionKey, nonce);
  return b64(Buffer.concat([Buffer.from([0]), nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]));
};
const fromApp = new Promise((resolve) => client.onUserMessage((message) => resolve(message.content.text)));
const app = io(url, { path: '/v1/updates', transports: ['websocket'], auth: { token, clientType: 'user-scoped' } });
const ephemeral = [];
const updates = [];
app.on('ephemeral', (event) => ephemeral.push(event));
app.on('update', (event) => updates.push(event.body.t));
await new Promise((resolve) => app.once('connect', resolve));
app.emit('message', { sid: session.id, localId: null, message: seal({ role: 'user', content: { type: 'text', text: 'hello from the app' } }) });
seen.fromApp = await fromApp;

// Metadata and state, with a lost race in between.
client.updateMetadata((m) => ({ ...m, summary: { text: 'a title', updatedAt: 1 } }));
await until('the reader knows the title', () => reader.getMetadata()?.summary?.text === 'a title');
reader.metadataVersion = 0;
reader.updateMetadata((m) => ({ ...m, name: 'after a mismatch' }));
await until('the first client knows the name', () => client.getMetadata()?.name === 'after a mismatch');
client.updateAgentState((s) => ({ ...s, controlledByUser: true }));
await until('the reader knows the state', () => reader.agentState?.controlledByUser === true);
seen.title = client.getMetadata().summary.text;

// Presence, usage, remote procedures.
client.keepAlive(true, 'local');
await until('the app sees it think', () => ephemeral.some((e) => e.type === 'activity' && e.id === session.id && e.active && e.thinking));
client.sendUsageData({ input_tokens: 10, output_tokens: 5 });
await until('the app sees the usage', () => ephemeral.some((e) => e.type === 'usage' && e.tokens.total === 15));
const rpc = await app.emitWithAck('rpc-call', { method: `${session.id}:readFile`, params: seal({}) });
seen.rpc = rpc.ok === true && typeof rpc.result === 'string';
client.sendSessionDeath();
await until('the app sees it end', () => ephemeral.some((e) => e.type === 'activity' && e.id === session.id && !e.active));

// A machine.
const machine = await api.getOrCreateMachine({
  machineId: `machine-${variant}`, metadata: { host: 'h', platform: 'p', happyCliVersion: '1', homeDir: '/', happyHomeDir: home, happyLibDir: '/l' },
});
const daemon = api.machineSyncClient(machine);
daemon.connect();
await until('the machine is active', async () => (await get(`/v1/machines/${machine.id}`)).machine.active);
await until('its state is known', async () => (await get(`/v1/machines/${machine.id}`)).machine.daemonStateVersion > 0);
seen.machine = machine.metadata.host;
daemon.shutdown();
await until('the app sees the machine go', () => ephemeral.some((e) => e.type === 'machine-activity' && e.id === machine.id && !e.active));

// The end, and the same tag again.
await api.deactivateSession(session.id);
seen.active = (await get('/v1/sessions')).sessions[0].active;
if (variant === 'legacy') {
  const again = await api.getOrCreateSession({ tag: 'tag', metadata, state: {} });
  seen.again = [again.id === session.id, again.metadata.summary.text, again.metadataVersion, again.seq];
}
seen.updates = [...new Set(updates)].sort();
await Promise.all([client.close(), reader.close()]);
app.close();
console.log(JSON.stringify(seen));
process.exit(0);
