-- A filter of your own can call this, and refuse what it refuses.
function packhorse.check(options)
	if options["type"] == "srun" and tonumber(options["jobid"]) ~= nil then
		-- A step of a job, which was checked itself.
		return slurm.SUCCESS
	end
	local amount = packhorse.asked(options["gres"], options["tres-per-task"], options["tres-per-node"],
		options["tres-per-job"], options["tres-per-socket"])
	if amount == nil then
		return slurm.SUCCESS
	end
	local known = function(value)
		return value ~= nil and value ~= "" and value or nil
	end
	local job = {
		user = os.getenv("USER"),
		knows_user = false,
		account = known(options["account"]),
		partition = known(options["partition"]),
		reservation = known(options["reservation"]),
	}
	-- What is not given here has a default that only slurmctld knows.
	job.knows_account = job.account ~= nil
	job.knows_partition = job.partition ~= nil
	local refusal = packhorse.refusal(amount, job)
	if refusal ~= nil then
		slurm.log_error("%s", refusal)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
	return packhorse.check(options)
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end
