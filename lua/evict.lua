-- evict.lua removes an idle lot from Redis, and appends that to the claim
-- stream. For a missing lot it removes what remains, and reports it as removed.
-- With a token it removes a lot that the token's loader has fenced, whose
-- campaign is being deleted.
--
-- KEYS[1] state   hash    definition and counters of the lot
-- KEYS[2] users   hash    is removed
-- KEYS[3] keys    hash    is removed
-- KEYS[4] waves   zset    is removed, with the lists of packets that it names
-- KEYS[5] moves   zset    is removed
-- KEYS[6] stream  stream  the claim stream of the partition
--
-- ARGV[1] now_ms    milliseconds since 1970; empty: this server's clock
-- ARGV[2] idle_ms   the least time since the last claim
-- ARGV[3] event_id
-- ARGV[4] event     its JSON
-- ARGV[5] token     of the loader, see fence.lua; empty: an idle lot
--
-- Reply {0} removed
--   {3} not now, untouched: a claim is too young; the start of the campaign or
--       of a release is ahead or too young; or a loader has it
local state_key, users_key, keys_key = KEYS[1], KEYS[2], KEYS[3]
local waves_key, moves_key, stream_key = KEYS[4], KEYS[5], KEYS[6]
local LEASE_MS = 3000 -- of a loader's token, see fence.lua

local lists = {}
local state_type = redis.call('TYPE', state_key)['ok']
local waves_type = redis.call('TYPE', waves_key)['ok']
if ARGV[5] ~= '' then
  if state_type ~= 'hash' or redis.call('HGET', state_key, 'token') ~= ARGV[5] then return {3} end
elseif state_type == 'hash' then
  local held = redis.call('HMGET', state_key, 'status', 'last_ms', 'starts_at_ms', 'token', 'token_ms')
  if held[4] and math.abs(redis.call('TIME')[1] * 1000 - (tonumber(held[5] or '') or 0)) < LEASE_MS then return {3} end
  local last_ms, starts_at_ms = tonumber(held[2] or ''), tonumber(held[3] or '')
  local now_ms = tonumber(ARGV[1])
  if not now_ms then
    local time = redis.call('TIME')
    now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  local idle_since_ms = now_ms - tonumber(ARGV[2])
  if last_ms and last_ms > idle_since_ms then return {3} end
  if held[1] ~= 'closed' then
    if starts_at_ms and starts_at_ms > idle_since_ms then return {3} end
    if waves_type == 'zset' and redis.call('ZCOUNT', waves_key, idle_since_ms, '+inf') > 0 then return {3} end
  end
end
if waves_type == 'zset' then lists = redis.call('ZRANGE', waves_key, 0, -1) end

-- Writes. If the first is refused, nothing was written.
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[3], 'metadata', '', 'payload', ARGV[4])
redis.call('UNLINK', state_key, users_key, keys_key, waves_key, moves_key)
for _, list in ipairs(lists) do redis.call('UNLINK', list) end
return {0}
