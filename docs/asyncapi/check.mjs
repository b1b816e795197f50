// Holds asyncapi.json to AsyncAPI's own parser: npm i @asyncapi/parser@3.6.3 && node check.mjs asyncapi.json
import { Parser } from '@asyncapi/parser';
import { readFileSync } from 'node:fs';

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], 'utf8'));
for (const d of diagnostics) console.log(['error', 'warning', 'info', 'hint'][d.severity], d.code, d.path.join('.'), d.message);
process.exit(document && !diagnostics.some((d) => d.severity === 0) ? 0 : 1);
