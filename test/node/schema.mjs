// Reads JSON lines from standard input and answers, one JSON line each, whether
// the official schema takes the line as a sealed message: {"ok":true} with the
// parsed envelope, or {"ok":false} with the first reason.
import { readFileSync } from 'node:fs';
import { SessionProtocolMessageSchema } from '@slopus/happy-wire';
import * as z from 'zod';

// What clients newer than the published package read besides, and refuse when
// it is wrong.
const count = z.number().int().nonnegative();
const newer = z.object({
  claudeUuid: z.string().min(1).optional(),
  codexItemId: z.string().min(1).optional(),
  usage: z.object({
    input_tokens: count,
    output_tokens: count,
    cache_creation_input_tokens: count.optional(),
    cache_read_input_tokens: count.optional(),
    context_window: count.positive().optional(),
    service_tier: z.string().optional(),
  }).optional(),
  ev: z.object({ mimeType: z.string().optional() }),
}).passthrough();
const schema = SessionProtocolMessageSchema.and(z.object({ content: newer }).passthrough());

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
  const result = schema.safeParse(message);
  out.push(result.success
    ? { ok: true, envelope: result.data.content }
    : { ok: false, reason: result.error.issues.map((i) => `${i.path.join('.')}: ${i.message}`).join('; ') });
}
console.log(out.map((o) => JSON.stringify(o)).join('\n'));
