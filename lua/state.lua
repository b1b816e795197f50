-- state.lua reads a lot's state at one moment.
--
-- KEYS[1] state   hash  definition and counters of the campaign
-- KEYS[2] users   hash  must exist if units were sold
-- KEYS[3] keys    hash  must exist if units were sold
-- KEYS[4] signals hash  of the partition, see away.lua
--
-- Reply {0, now_ms, then pairs of a field and its value}
--   {1} absent, or away · {2, which} damaged: the key of that number
local state_key, users_key, keys_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- include away.lua

-- As in claim.lua: counts without a state remain after a loss. A hash
-- that is missing though units were sold was lost.
if redis.call('EXISTS', state_key, users_key, keys_key) == 0 then return {1} end
if redis.call('TYPE', state_key)['ok'] ~= 'hash' then return {2, 1} end
if is_away(state_key, signals_key) then return {1} end
local sold = redis.call('HGET', state_key, 'sold')
local users_type = redis.call('TYPE', users_key)['ok']
local keys_type = redis.call('TYPE', keys_key)['ok']
if users_type ~= 'hash' and (users_type ~= 'none' or sold ~= '0') then return {2, 2} end
if keys_type ~= 'hash' and (keys_type ~= 'none' or sold ~= '0') then return {2, 3} end

local time = redis.call('TIME')
local reply = {0, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)}
local fields = redis.call('HGETALL', state_key)
for i = 1, #fields do reply[i + 2] = fields[i] end
return reply
