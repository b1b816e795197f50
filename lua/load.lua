-- load.lua writes a campaign that Redis does not hold, whole or not at all, from what was staged for it.
--
-- The first write is an HSET, which Redis refuses whole when it is out of memory, a replica or unable to persist.
--
-- KEYS[1] state         hash    definition and counters of the campaign
-- KEYS[2] users         hash    must not be there, unless replace allows it
-- KEYS[3] keys          hash    must not be there, unless replace allows it
-- KEYS[4] evicted       string  the tombstone of the last eviction, see evict.lua; a load removes it
-- KEYS[5] staged_users  hash    becomes users
-- KEYS[6] staged_keys   hash    becomes keys
-- KEYS[7] waves         zset    what an earlier load left; it is removed with the lists of packets that it names
-- KEYS[8] moves         zset    what an earlier load left; it is removed
--
-- ARGV[1] now_ms   milliseconds since 1970; empty: this server's clock
-- ARGV[2] epoch    number of this load
-- ARGV[3] replace  1: a fenced campaign of an earlier load is replaced, and so are parts that a loss left
-- ARGV[4] users    fields that were staged
-- ARGV[5] keys     fields that were staged
-- ARGV[6..] pairs of a field of state and its value
--
-- Reply {0} loaded · {1} it is there already, untouched · {2, which} damaged: the key of that number
--   {3} not all that was staged is there · {4, tombstone} the load is behind the last eviction, untouched; replace allows it
local state_key, users_key, keys_key, evicted_key, staged_users_key, staged_keys_key, waves_key, moves_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local epoch, replace = tonumber(ARGV[2]), ARGV[3] == '1'
local loads = {epoch = 0, last_ms = 0}
for i = 6, #ARGV, 2 do loads[ARGV[i]] = tonumber(ARGV[i + 1]) or 0 end

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'hash' then
  local held = redis.call('HMGET', state_key, 'status', 'epoch')
  local held_epoch = tonumber(held[2] or '')
  if held_epoch and held_epoch >= epoch then return {1} end
  -- A load that MySQL did not confirm took no claims, so it may be replaced.
  if held[1] ~= 'loading' and not (replace and held[1] == 'fenced') then return {1} end
elseif state_type ~= 'none' then
  return {2, 1}
elseif not replace then
  -- Counts without a state are left of a loss. A load over them would forget what users hold.
  if redis.call('TYPE', users_key)['ok'] ~= 'none' then return {2, 2} end
  if redis.call('TYPE', keys_key)['ok'] ~= 'none' then return {2, 3} end
end
-- MySQL had all of the campaign when it was evicted. One that has less now was restored to an earlier time.
local evicted_type = redis.call('TYPE', evicted_key)['ok']
if evicted_type ~= 'string' and evicted_type ~= 'none' then return {2, 4} end
if evicted_type == 'string' and not replace then
  local tombstone = redis.call('GET', evicted_key)
  local evicted_epoch, evicted_seq = string.match(tombstone, '^(%d+):(%d+)$')
  if not evicted_epoch then return {2, 4} end
  if epoch <= tonumber(evicted_epoch) or loads.seq < tonumber(evicted_seq) then return {4, tombstone} end
end
if redis.call('HLEN', staged_users_key) ~= tonumber(ARGV[4]) then return {3} end
if redis.call('HLEN', staged_keys_key) ~= tonumber(ARGV[5]) then return {3} end

local now_ms = tonumber(ARGV[1])
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local lists = {}
if redis.call('TYPE', waves_key)['ok'] == 'zset' then lists = redis.call('ZRANGE', waves_key, 0, -1) end

local stale = {}
for _, name in ipairs(redis.call('HKEYS', state_key)) do
  if not loads[name] then stale[#stale + 1] = name end
end

redis.call('HSET', state_key, 'epoch', ARGV[2], 'last_ms', now_ms, unpack(ARGV, 6))
if stale[1] then redis.call('HDEL', state_key, unpack(stale)) end
redis.call('PERSIST', state_key)
redis.call('UNLINK', users_key) -- a RENAME over a big hash would free it at once, and block Redis for that long
redis.call('UNLINK', keys_key)
redis.call('UNLINK', evicted_key)
for _, list in ipairs(lists) do redis.call('UNLINK', list) end
redis.call('UNLINK', waves_key, moves_key)
if ARGV[4] ~= '0' then
  redis.call('RENAME', staged_users_key, users_key)
  redis.call('PERSIST', users_key)
end
if ARGV[5] ~= '0' then
  redis.call('RENAME', staged_keys_key, keys_key)
  redis.call('PERSIST', keys_key)
end
return {0}
