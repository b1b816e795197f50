-- state.lua reads a campaign's state at one moment.
--
-- KEYS[1] state  hash  definition and counters of the campaign
--
-- Reply {0, now_ms, then pairs of a field and its value} · {1} absent · {2, which} damaged: the key of that number
local state_key = KEYS[1]

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end

local time = redis.call('TIME')
local reply = {0, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)}
local fields = redis.call('HGETALL', state_key)
for i = 1, #fields do reply[i + 2] = fields[i] end
return reply
