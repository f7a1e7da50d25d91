local there, problem = pcall(dofile, "@FILE@")
if not there then
	function slurm_job_submit(job)
		local asked = tostring(job.gres) .. tostring(job.tres_per_node) .. tostring(job.tres_per_task)
		if not asked:match("mps") then return slurm.SUCCESS end
		slurm.log_user("packhorse: mps is not available: %s", problem)
		return slurm.ERROR
	end
	slurm_job_modify = slurm_job_submit
end
return slurm.SUCCESS
