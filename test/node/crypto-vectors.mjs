// Prints the known answers in crypto/testdata/vectors.json, computed from a few
// fixed secrets without any of happyd's own code:
//   node crypto-vectors.mjs > ../../crypto/testdata/vectors.json
import { createHash } from 'node:crypto';
import nacl from 'tweetnacl';
import * as h from './happycrypto.mjs';

const bytes = (label, n) => new Uint8Array(createHash('sha256').update(`happyd test ${label}`).digest().subarray(0, n));
const hex = (b) => Buffer.from(b).toString('hex');
const base64url = (b) => Buffer.from(b).toString('base64url');

const secret = bytes('secret', 32);
const dataKey = bytes('data key', 32);
const challenge = bytes('challenge', 32);
const sign = nacl.sign.keyPair.fromSeed(secret);
const content = h.contentKeys(secret);
const terminal = nacl.box.keyPair.fromSecretKey(bytes('terminal', 32));
const bundle = (label, to, plain) => h.sealBundle(to, bytes(`${label} ephemeral`, 32), bytes(`${label} nonce`, 24), plain);
const plaintext = {
  role: 'session',
  content: { id: 'm3xk0v8r2t5q9w1c7b4n6z0p', time: 1764560000000, role: 'user', ev: { t: 'text', text: 'naïve <b>&amp;</b> \u2028 🦉' } },
};
const message = Buffer.from(JSON.stringify(plaintext));
const blob = new Uint8Array([255, 0, 137, 80, 78, 71]);

console.log(JSON.stringify({
  secret_b64: h.b64(secret),
  data_key_b64: h.b64(dataKey),
  sign_public_hex: hex(sign.publicKey),
  challenge_b64: h.b64(challenge),
  challenge_signature_b64: h.b64(nacl.sign.detached(challenge, sign.secretKey)),
  content_seed_hex: hex(content.seed),
  content_secret_hex: hex(content.secretKey),
  content_public_hex: hex(content.publicKey),
  analytics_id: hex(h.deriveKey(secret, 'Happy Coder', ['analytics', 'id'])).slice(0, 16),
  blob_key_legacy_hex: hex(h.blobKey.legacy(secret)),
  blob_key_datakey_hex: hex(h.blobKey.datakey(dataKey)),
  terminal_secret_hex: hex(terminal.secretKey),
  terminal_public_b64: h.b64(terminal.publicKey),
  terminal_url: `happy://terminal?${base64url(terminal.publicKey)}`,
  web_url_suffix: `/terminal/connect#key=${base64url(terminal.publicKey)}`,
  account_link_url: `happy:///account?${base64url(terminal.publicKey)}`,
  pairing_response_v1_b64: h.b64(bundle('v1', terminal.publicKey, secret)),
  pairing_response_v2_b64: h.b64(bundle('v2', terminal.publicKey, Buffer.concat([Buffer.of(0), content.publicKey]))),
  wrapped_data_key_b64: h.b64(Buffer.concat([Buffer.of(0), bundle('wrap', content.publicKey, dataKey)])),
  plaintext,
  datakey_ciphertext_b64: h.b64(h.sealDataKey(dataKey, bytes('gcm nonce', 12), message)),
  legacy_ciphertext_b64: h.b64(h.sealSecretbox(secret, bytes('secretbox nonce', 24), message)),
  blob_plain_hex: hex(blob),
  blob_datakey_b64: h.b64(h.sealSecretbox(h.blobKey.datakey(dataKey), bytes('blob nonce', 24), blob)),
  blob_legacy_b64: h.b64(h.sealSecretbox(h.blobKey.legacy(secret), bytes('blob nonce', 24), blob)),
}, null, 2));
