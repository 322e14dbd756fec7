// Prints what it read and which versions of the official parts are installed.
import { readFileSync } from 'node:fs';

const versions = {};
for (const name of ['@slopus/happy-wire', 'socket.io', 'socket.io-client', 'tweetnacl']) {
  const file = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  versions[name] = JSON.parse(readFileSync(file, 'utf8')).version;
}
console.log(JSON.stringify({ stdin: readFileSync(0, 'utf8'), versions }));
