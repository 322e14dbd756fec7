// Opens what Go sealed and seals what Go shall open. Input: {account, messages,
// blobs, ...}, all byte strings in base64; output in the same order.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import nacl from 'tweetnacl';
import * as h from './happycrypto.mjs';

const input = JSON.parse(readFileSync(0, 'utf8'));
const random = (n) => new Uint8Array(randomBytes(n));

const open = { datakey: h.openDataKey, legacy: h.openSecretbox };
const seal = {
  datakey: (key, plain) => h.sealDataKey(key, random(12), plain),
  legacy: (key, plain) => h.sealSecretbox(key, random(24), plain),
};

// Each message names its key, or the wrapped key that the account must open.
const content = h.contentKeys(h.unb64(input.secret));
const messages = input.messages.map(({ variant, key, wrapped, sealed, blob }) => {
  let k = wrapped ? h.openBundle(content.secretKey, h.unb64(wrapped).subarray(1)) : h.unb64(key);
  if (blob) k = h.blobKey[variant](k);
  const box = blob ? 'legacy' : variant;
  const plain = open[box](k, h.unb64(sealed));
  return { plain: h.b64(plain), sealed: h.b64(seal[box](k, plain)) };
});

const challenge = random(32);
const auth = input.auth;
console.log(JSON.stringify({
  messages,
  contentPublic: h.b64(content.publicKey),
  authValid: nacl.sign.detached.verify(h.unb64(auth.challenge), h.unb64(auth.signature), h.unb64(auth.public)),
  pairingOpened: h.b64(h.openBundle(h.unb64(input.pairing.terminalSecret), h.unb64(input.pairing.response))),
  pairingV1: h.b64(h.sealBundle(h.unb64(input.pairing.terminalPublic), random(32), random(24), challenge)),
  pairingV1Secret: h.b64(challenge),
}));
