-- load.lua replaces a lot by what was staged for it.
--
-- KEYS[1] state         hash    definition and counters of the lot
-- KEYS[2] users         hash    is replaced
-- KEYS[3] keys          hash    is replaced
-- KEYS[4] waves         zset    see push.lua
-- KEYS[5] moves         zset    is removed
-- KEYS[6] staged_users  hash    becomes users
-- KEYS[7] staged_keys   hash    becomes keys
-- KEYS[8] staged_waves  zset    becomes waves
-- KEYS[9] stream        stream  the claim stream of the partition
-- KEYS[10] signals      hash    of the partition, see away.lua
--
-- ARGV[1] now_ms      milliseconds since 1970; empty: this server's clock
-- ARGV[2] token       the loader's, see fence.lua
-- ARGV[3] generation  of the partition, by MySQL
-- ARGV[4] users       staged fields
-- ARGV[5] keys        staged fields
-- ARGV[6] packets     staged
-- ARGV[7] event_id
-- ARGV[8] event       its JSON
-- ARGV[9] last_ms     time of the newest claim, by MySQL. A lot's time does
--                     not decrease, even if this clock is behind the last one
-- ARGV[10..] pairs of a field of state and its value
--
-- Reply {0} loaded · {1} another token, untouched
--   {3} another generation, untouched · {4} staged data is missing, untouched
local state_key, users_key, keys_key, waves_key, moves_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local staged_users_key, staged_keys_key, staged_waves_key = KEYS[6], KEYS[7], KEYS[8]
local stream_key, signals_key = KEYS[9], KEYS[10]
local FIRST_PAIR = 10

if redis.call('TYPE', state_key)['ok'] ~= 'hash' or redis.call('HGET', state_key, 'token') ~= ARGV[2] then return {1} end
if (redis.call('HGET', signals_key, 'generation') or '0') ~= ARGV[3] then return {3} end
if redis.call('HLEN', staged_users_key) ~= tonumber(ARGV[4]) then return {4} end
if redis.call('HLEN', staged_keys_key) ~= tonumber(ARGV[5]) then return {4} end
local waves = redis.call('ZRANGE', staged_waves_key, 0, -1)
local packets = 0
for _, list in ipairs(waves) do packets = packets + redis.call('LLEN', list) end
if packets ~= tonumber(ARGV[6]) then return {4} end

local now_ms = tonumber(ARGV[1])
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local lists = {}
if redis.call('TYPE', waves_key)['ok'] == 'zset' then lists = redis.call('ZRANGE', waves_key, 0, -1) end

-- Writes. None after the first can fail.
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[7], 'metadata', '', 'payload', ARGV[8])
for _, list in ipairs(lists) do redis.call('UNLINK', list) end
-- RENAME over a big hash would free it at once, and so block Redis.
redis.call('UNLINK', state_key, users_key, keys_key, waves_key, moves_key)
-- during a slot migration scripts wait for missing keys
redis.call('HSETNX', signals_key, 'generation', ARGV[3])
redis.call('HSET', state_key, 'generation', ARGV[3], 'last_ms', math.max(now_ms, tonumber(ARGV[9])), unpack(ARGV, FIRST_PAIR))
if ARGV[4] ~= '0' then
  redis.call('RENAME', staged_users_key, users_key)
  redis.call('PERSIST', users_key)
end
if ARGV[5] ~= '0' then
  redis.call('RENAME', staged_keys_key, keys_key)
  redis.call('PERSIST', keys_key)
end
if #waves > 0 then
  redis.call('RENAME', staged_waves_key, waves_key)
  redis.call('PERSIST', waves_key)
end
for _, list in ipairs(waves) do redis.call('PERSIST', list) end
return {0}
