// Happy's formats once more, from tweetnacl and node:crypto alone: the other
// side of the interoperability tests of package crypto.
import { createCipheriv, createDecipheriv, createHash, createHmac } from 'node:crypto';
import nacl from 'tweetnacl';

export const b64 = (bytes) => Buffer.from(bytes).toString('base64');
export const unb64 = (text) => new Uint8Array(Buffer.from(text, 'base64'));

export function deriveKey(master, usage, path) {
  let i = createHmac('sha512', `${usage} Master Seed`).update(master).digest();
  for (const element of path) {
    i = createHmac('sha512', i.subarray(32)).update(Buffer.concat([Buffer.of(0), Buffer.from(element)])).digest();
  }
  return new Uint8Array(i.subarray(0, 32));
}

export function contentKeys(secret) {
  const seed = deriveKey(secret, 'Happy EnCoder', ['content']);
  const secretKey = createHash('sha512').update(seed).digest().subarray(0, 32);
  return { seed, ...nacl.box.keyPair.fromSecretKey(new Uint8Array(secretKey)) };
}

export const blobKey = {
  datakey: (key) => deriveKey(key, 'Happy Blobs', ['session']),
  legacy: (secret) => deriveKey(secret, 'Happy Blobs', ['master']),
};

export function sealDataKey(key, nonce, plain) {
  const cipher = createCipheriv('aes-256-gcm', key, nonce);
  return Buffer.concat([Buffer.of(0), nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

export function openDataKey(key, sealed) {
  if (sealed[0] !== 0) throw new Error('unknown version');
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(1, 13));
  decipher.setAuthTag(sealed.subarray(sealed.length - 16));
  return Buffer.concat([decipher.update(sealed.subarray(13, sealed.length - 16)), decipher.final()]);
}

export const sealSecretbox = (key, nonce, plain) => Buffer.concat([nonce, nacl.secretbox(plain, nonce, key)]);

export function openSecretbox(key, sealed) {
  const plain = nacl.secretbox.open(sealed.subarray(24), sealed.subarray(0, 24), key);
  if (!plain) throw new Error('secretbox does not open');
  return plain;
}

export function sealBundle(publicKey, ephemeral, nonce, plain) {
  const pair = nacl.box.keyPair.fromSecretKey(ephemeral);
  return Buffer.concat([pair.publicKey, nonce, nacl.box(plain, nonce, publicKey, ephemeral)]);
}

export function openBundle(secretKey, bundle) {
  const plain = nacl.box.open(bundle.subarray(56), bundle.subarray(32, 56), bundle.subarray(0, 32), secretKey);
  if (!plain) throw new Error('box does not open');
  return plain;
}
