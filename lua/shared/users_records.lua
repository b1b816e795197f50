-- The records of users, for claim.lua and release.lua.
local DIGITS = 15 -- Lua's numbers are exact up to 15 digits

-- read_limits parses a campaign's limits. It returns those of the user,
-- and a list of the others, also keyed by subject. nil means damaged.
-- The user's first two limits are always counted.
--
-- Each other limit is "tag:units:from_ms:subject"; ";" joins them. A
-- tag is the first letter of all, hour, day, week or month, and the
-- definition that added the limit. Claims before from_ms do not count.
local function read_limits(per_user, per_user_per_day, text)
  local of_user = {{tag = 'a', most = per_user, from = 0}, {tag = 'd', most = per_user_per_day, from = 0}}
  local others, joined = {}, {}
  local n = 0
  if not text or text == '' then return of_user, others end
  for tag, most, from, by in string.gmatch(text, '(%l%d+):(%d+):(%d+):([%l_]+)') do
    if #most > DIGITS or #from > DIGITS then return nil end
    n = n + 1
    joined[n] = tag .. ':' .. most .. ':' .. from .. ':' .. by
    local group = of_user
    if by ~= 'user' then
      if not others[by] then
        others[by] = {name = by}
        others[#others + 1] = others[by]
      end
      group = others[by]
    end
    group[#group + 1] = {tag = tag, most = tonumber(most), from = tonumber(from), number = n}
  end
  if table.concat(joined, ';') ~= text then return nil end
  return of_user, others
end

-- read_record parses a subject's record: for each limit, its newest
-- window and the units in it. A user's record starts with
-- "0:units;day:units": in all, and on the last day. Then follows
-- ";tag.window:units" for each other limit. It returns windows and
-- units by tag, or nil if the record is damaged.
local function read_record(record, is_user)
  local windows, counts = {}, {}
  local rest = record
  local joined = ''
  if is_user then
    local all, day, today
    all, day, today, rest = string.match(record, '^0:(%d+);(%d+):(%d+)(.*)$')
    if not all or #all > DIGITS or #day > DIGITS or #today > DIGITS then return nil end
    windows.a = 0
    counts.a = tonumber(all)
    windows.d = tonumber(day)
    counts.d = tonumber(today)
  end
  if rest == '' then return windows, counts end
  for tag, window, units in string.gmatch(rest, ';(%l%d+)%.(%d+):(%d+)') do
    if #window > DIGITS or #units > DIGITS then return nil end
    windows[tag] = tonumber(window)
    counts[tag] = tonumber(units)
    joined = joined .. ';' .. tag .. '.' .. window .. ':' .. units
  end
  if joined ~= rest then return nil end
  return windows, counts
end

-- write_record formats a record. Removed limits are left out.
local function write_record(limits, windows, counts, is_user)
  local record = ''
  local first = 1
  if is_user then
    record = '0:' .. counts.a .. ';' .. windows.d .. ':' .. counts.d
    first = 3
  end
  for i = first, #limits do
    local tag = limits[i].tag
    if windows[tag] then record = record .. ';' .. tag .. '.' .. windows[tag] .. ':' .. counts[tag] end
  end
  return record
end
