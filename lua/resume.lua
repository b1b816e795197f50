-- resume.lua continues a stopped lot after what a caller saw of it. What was
-- seen and is missing here is lost, and stays taken.
--
-- KEYS[1] state   hash    definition and counters of the lot
-- KEYS[2] users   hash    gets a nameless field for claims without a record
-- KEYS[3] keys    hash    likewise
-- KEYS[4] stream  stream  the claim stream of the partition
-- KEYS[5] signals hash    of the partition, see away.lua
--
-- ARGV[1] token       the loader's, see fence.lua
-- ARGV[2] generation  of the partition, by MySQL
-- ARGV[3] epoch       the next one
-- ARGV[4] seq         the highest seq used
-- ARGV[5] sold        units ever sold
-- ARGV[6] event_id
-- ARGV[7] event       its JSON
--
-- Reply {0} live · {1} another token, untouched
--   {3} another generation, untouched
local state_key, users_key, keys_key, stream_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local held = redis.call('HMGET', state_key, 'token', 'generation', 'sold', 'taken')
if held[1] ~= ARGV[1] then return {1} end
local generation = redis.call('HGET', signals_key, 'generation') or '0'
if generation ~= ARGV[2] or held[2] ~= generation then return {3} end
local sold = tonumber(ARGV[5])
local taken = tonumber(held[4]) + sold - tonumber(held[3])

-- Writes. None after the first can fail.
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[6], 'metadata', '', 'payload', ARGV[7])
redis.call('HSET', state_key, 'epoch', ARGV[3], 'seq', ARGV[4], 'sold', string.format('%.0f', sold),
  'taken', string.format('%.0f', taken))
redis.call('HDEL', state_key, 'token', 'token_ms')
if sold > 0 then -- there must be records then
  redis.call('HSET', users_key, '', '')
  redis.call('HSET', keys_key, '', '')
end
return {0}
