-- Made by `packhorse node install`. Who may ask for mps is written in the configuration,
-- not here: a change there needs no change of this file.
packhorse = { config = "@CONFIG@" }

-- A name with * and ? as a pattern of Lua.
function packhorse.matches(pattern, name)
	local lua = pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".")
	return name:match("^" .. lua .. "$") ~= nil
end

-- The names in what is between the brackets of a list; nil if anything else is there.
function packhorse.names(list)
	local names = {}
	local rest = list:gsub("%s", "") .. ","
	for item in rest:gmatch("([^,]*),") do
		local name = item:match('^"([%w_.*?@+:/=-]+)"$') or item:match("^'([%w_.*?@+:/=-]+)'$")
		if name ~= nil then
			table.insert(names, name)
		elseif item ~= "" then
			return nil
		end
	end
	return names
end

local LISTS = { users = true, accounts = true, partitions = true, reservations = true }

-- The sections [[allow]] of the configuration; or nil and what is wrong. What it cannot read it
-- does not skip: that might be a rule.
function packhorse.rules()
	local file, problem = io.open(packhorse.config, "r")
	if file == nil then
		return nil, problem
	end
	local rules, rule, key, open, number = {}, nil, nil, nil, 0
	local understood = function(line)
		if open ~= nil then
			open = open .. line
		elseif line:match("^%s*$") then
			return true
		elseif line:match("^%s*%[") then
			local brackets, name = line:match("^%s*(%[%[?)%s*([%w_-]+)%s*%]%]?%s*$")
			rule = nil
			if name == "allow" then
				rule = {}
				table.insert(rules, rule)
				return brackets == "[["
			end
			return name ~= nil
		elseif rule == nil then
			-- Of the other sections all that matters is that no rule is written there.
			local name = line:match("^%s*([%w_.-]+)%s*=")
			return name ~= nil and not name:match("^allow") and not line:match('"""') and not line:match("'''")
		else
			local value
			key, value = line:match("^%s*(%w+)%s*=%s*(.-)%s*$")
			if key == "most" and rule.most == nil and value:match("^[1-9][%d_]*$") then
				rule.most = tonumber((value:gsub("_", "")))
				return true
			elseif not LISTS[key] or rule[key] ~= nil or not value:match("^%[") then
				return false
			end
			open = value
		end
		if not open:find("%]") then
			return true
		end
		local list = open:match("^%[([^%[%]]*)%]%s*$")
		open = nil
		rule[key] = list and packhorse.names(list)
		return rule[key] ~= nil
	end
	for line in file:lines() do
		number = number + 1
		-- No name of a rule has a number sign in it.
		if not understood((line:gsub("#.*$", ""):gsub("\r$", ""))) then
			file:close()
			return nil, string.format("%s: line %d cannot be read here; write it as docs/slurm-node.md does",
				packhorse.config, number)
		end
	end
	file:close()
	if open ~= nil then
		return nil, packhorse.config .. ": a list does not end"
	end
	return rules
end

-- Whether a list is empty, or has a pattern of this name; of several names, with commas, of each.
function packhorse.fits(patterns, names)
	if patterns == nil or #patterns == 0 then
		return true
	elseif names == nil then
		return false
	end
	for name in (names .. ","):gmatch("([^,]*),") do
		local fits = false
		for _, pattern in ipairs(patterns) do
			fits = fits or packhorse.matches(pattern, name)
		end
		if not fits then
			return false
		end
	end
	return true
end

-- The mps in texts such as "gpu:1,mps:64" or "gres/mps:titanrtx:64"; nil if there is none.
function packhorse.asked(...)
	local most = nil
	for index = 1, select("#", ...) do
		local text = select(index, ...)
		if type(text) == "string" then
			for part in text:gmatch("[^,]+") do
				part = part:gsub("^%s*gres[/:]", ""):gsub("%s+$", "")
				local rest = part:match("^mps(.*)$")
				if rest ~= nil and (rest == "" or rest:match("^[:=]")) then
					local number, unit = rest:match("[:=](%d+)([kKmM]?)$")
					local amount = tonumber(number) or 1
					if unit == "k" or unit == "K" then
						amount = amount * 1024
					elseif unit == "m" or unit == "M" then
						amount = amount * 1048576
					end
					most = math.max(most or 0, amount)
				end
			end
		end
	end
	return most
end

-- Why a job may not have so much; nil if it may. What is not known of the job (known = false)
-- is left to the node.
function packhorse.refusal(amount, job)
	local rules, problem = packhorse.rules()
	if rules == nil then
		return "packhorse: mps is not available: cannot read its rules: " .. tostring(problem)
	end
	local most = nil
	for _, rule in ipairs(rules) do
		local fits = packhorse.fits(rule.reservations, job.reservation)
		fits = fits and (not job.knows_user or packhorse.fits(rule.users, job.user))
		fits = fits and (not job.knows_account or packhorse.fits(rule.accounts, job.account))
		fits = fits and (not job.knows_partition or packhorse.fits(rule.partitions, job.partition))
		if fits and (rule.most == nil or amount <= rule.most) then
			return nil
		elseif fits then
			most = math.max(most or 0, rule.most)
		end
	end
	if #rules == 0 then
		return nil
	elseif most ~= nil then
		return string.format("packhorse: mps:%d is too much: at most mps:%d is allowed here", amount, most)
	end
	return string.format("packhorse: mps is not allowed for user %s, account %s, partition %s, reservation %s",
		tostring(job.user or "none"), tostring(job.account or "none"),
		tostring(job.partition or "none"), tostring(job.reservation or "none"))
end
