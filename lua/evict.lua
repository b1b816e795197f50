-- evict.lua removes a campaign from Redis that no one has claimed from for long and that MySQL holds in full. It leaves a tombstone,
-- by which a MySQL that has less at the next load is known to have been restored to an earlier time.
--
-- KEYS[1] state    hash    definition and counters of the campaign
-- KEYS[2] users    hash    is removed
-- KEYS[3] keys     hash    is removed
-- KEYS[4] evicted  string  the tombstone, becomes "epoch:seq"
-- KEYS[5] waves    zset    is removed, with the lists of packets that it names
-- KEYS[6] moves    zset    is removed
--
-- ARGV[1] now_ms   milliseconds since 1970; empty: this server's clock
-- ARGV[2] epoch    the load that MySQL knows
-- ARGV[3] seq      accepted claims that have their row in MySQL
-- ARGV[4] idle_ms  how long no one must have claimed
-- ARGV[5] keep_s   how long the tombstone stays, unless a load removes it
--
-- Reply {0} evicted · {1} absent: the campaign is not here · {2, which} damaged: the key of that number
--   {3} not now: another load is here; a claim is missing in MySQL; a claim is too young; the start of the campaign or the release of packets
--       is to come or too young; or the campaign takes no claims; untouched
local state_key, users_key, keys_key, evicted_key, waves_key, moves_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local held = redis.call('HMGET', state_key, 'status', 'epoch', 'seq', 'last_ms', 'starts_at_ms')
if held[1] == 'loading' or held[1] == 'fenced' then return {3} end
if held[2] ~= ARGV[2] or held[3] ~= ARGV[3] then return {3} end
local last_ms = tonumber(held[4] or '')
local starts_at_ms = tonumber(held[5] or '')
if not last_ms or not starts_at_ms then return {2, 1} end
local now_ms = tonumber(ARGV[1])
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local idle_since_ms = now_ms - tonumber(ARGV[4])
if last_ms > idle_since_ms then return {3} end
if held[1] ~= 'closed' and starts_at_ms > idle_since_ms then return {3} end
local lists = {}
local waves_type = redis.call('TYPE', waves_key)['ok']
if waves_type == 'zset' then
  if held[1] ~= 'closed' and redis.call('ZCOUNT', waves_key, idle_since_ms, '+inf') > 0 then return {3} end
  lists = redis.call('ZRANGE', waves_key, 0, -1)
elseif waves_type ~= 'none' then
  return {2, 5}
end

redis.call('UNLINK', state_key) -- first: it needs no memory, and once a script has written, Redis lets it go on
redis.call('UNLINK', users_key)
redis.call('UNLINK', keys_key)
for _, list in ipairs(lists) do redis.call('UNLINK', list) end
redis.call('UNLINK', waves_key, moves_key)
redis.call('SET', evicted_key, ARGV[2] .. ':' .. ARGV[3], 'EX', ARGV[5])
return {0}
