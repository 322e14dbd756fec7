// Reads JSON lines from standard input and answers, one JSON line each, whether
// the official schema takes the line as a sealed message: {"ok":true} with the
// parsed envelope, or {"ok":false} with the first reason.
import { readFileSync } from 'node:fs';
import { SessionProtocolMessageSchema } from '@slopus/happy-wire';

const out = [];
for (const line of readFileSync(0, 'utf8').split('\n')) {
  if (line === '') continue;
  let message;
  try {
    message = JSON.parse(line);
  } catch (error) {
    out.push({ ok: false, reason: `not JSON: ${error.message}` });
    continue;
  }
  const result = SessionProtocolMessageSchema.safeParse(message);
  out.push(result.success
    ? { ok: true, envelope: result.data.content }
    : { ok: false, reason: result.error.issues.map((i) => `${i.path.join('.')}: ${i.message}`).join('; ') });
}
console.log(out.map((o) => JSON.stringify(o)).join('\n'));
