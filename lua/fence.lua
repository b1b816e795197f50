-- fence.lua stores a loader's token in a lot, even a missing one. The lot
-- refuses claims until load.lua or resume.lua removes it. Each call extends the
-- token by LEASE_MS; after that another loader may replace it.
--
-- KEYS[1] state   hash  definition and counters of the lot
-- KEYS[2] users   hash  must exist if units were sold
-- KEYS[3] keys    hash  must exist if units were sold
-- KEYS[4] signals hash  of the partition, see away.lua
--
-- ARGV[1] token
-- ARGV[2] how    load: a lot that is away · reload: any · renew: extend
--                leave: give up
--
-- Reply {0, held, epoch, seq, sold} the token is stored, unless the loader
--   gives up. held is the lot before: 0 nothing · 1 stopped
--   2 of an older generation · 3 damaged
--   {1} the lot is live, untouched · {3} another loader has it, untouched
local state_key, users_key, keys_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, how = ARGV[1], ARGV[2]
local LEASE_MS = 3000
local EMPTY_MS = 600000

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local generation = redis.call('HGET', signals_key, 'generation') or '0'
local state_type = redis.call('TYPE', state_key)['ok']
local held = 0
local numbers = {0, 0, 0}
local left = redis.call('EXISTS', users_key, keys_key)

if state_type == 'hash' then
  local fields = redis.call('HMGET', state_key, 'epoch', 'seq', 'sold', 'taken', 'generation', 'token', 'token_ms')
  local other = fields[6]
  -- The absolute value: the clock was ahead
  -- when a far later time was written.
  if other and other ~= token and math.abs(now_ms - (tonumber(fields[7] or '') or 0)) < LEASE_MS then return {3} end
  if how == 'leave' or how == 'renew' then
    if other ~= token then return {3} end
    redis.call('HSET', state_key, 'token_ms', how == 'renew' and now_ms or 0)
    return {0, 0, 0, 0, 0}
  end
  local whole = true
  for i = 1, 4 do
    local text = fields[i]
    if not text or #text > 15 or not string.find(text, '^%d+$') then whole = false else numbers[i] = tonumber(text) end
  end
  local function is(key, wanted)
    local kind = redis.call('TYPE', key)['ok']
    return kind == 'hash' or kind == 'none' and not wanted
  end
  if not whole then
    held = (fields[1] or left > 0) and 3 or 0
  elseif not is(users_key, numbers[3] > 0) or not is(keys_key, numbers[3] > 0) then
    held = 3
  elseif fields[5] ~= generation then
    held = 2
  elseif not other and how ~= 'reload' then
    return {1}
  else
    held = 1
  end
elseif how == 'leave' or how == 'renew' then
  return {3}
elseif state_type ~= 'none' then
  redis.call('UNLINK', state_key)
  held = 3
elseif left > 0 then
  held = 3
end

redis.call('HSET', state_key, 'token', token, 'token_ms', now_ms)
if held == 0 then redis.call('PEXPIRE', state_key, EMPTY_MS) end -- the loader may die
-- processes then report what they saw
if held == 1 then redis.call('HINCRBY', signals_key, 'stops', 1) end
return {0, held, numbers[1], numbers[2], numbers[3]}
